"""LangChain's names and shapes for comparing two texts: `from compat.langchain import load_evaluator`."""

from compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from compat.langchain.criteria import ConstitutionalPrinciple, Criteria, resolve_pairwise_criteria
from compat.langchain.loading import load_evaluator, load_evaluators
from compat.langchain.prompts import PromptTemplate
from compat.langchain.schema import EvaluatorType, PairwiseStringEvaluator
from compat.langchain.verdicts import PairwiseStringResultOutputParser

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
