"""LangChain's API for comparing two texts: `from evalflows.compat.langchain import load_evaluator`."""

from evalflows.compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from evalflows.compat.langchain.criteria import ConstitutionalPrinciple, Criteria, resolve_pairwise_criteria
from evalflows.compat.langchain.loading import load_evaluator, load_evaluators
from evalflows.compat.langchain.prompts import PromptTemplate
from evalflows.compat.langchain.schema import EvaluatorType, PairwiseStringEvaluator
from evalflows.compat.langchain.verdicts import PairwiseStringResultOutputParser

__all__ = [
    "ConstitutionalPrinciple",
    "Criteria",
    "EvaluatorType",
    "LabeledPairwiseStringEvalChain",
    "PairwiseStringEvalChain",
    "PairwiseStringEvaluator",
    "PairwiseStringResultOutputParser",
    "PromptTemplate",
    "load_evaluator",
    "load_evaluators",
    "resolve_pairwise_criteria",
]
