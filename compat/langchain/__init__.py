"""LangChain's API for evaluating texts: `from evalflows.compat.langchain import load_evaluator`."""

from typing import Any

from evalflows.compat.langchain.comparison import LabeledPairwiseStringEvalChain, PairwiseStringEvalChain
from evalflows.compat.langchain.criteria import ConstitutionalPrinciple, Criteria, resolve_pairwise_criteria
from evalflows.compat.langchain.loading import load_evaluator, load_evaluators
from evalflows.compat.langchain.principles import REMEDY
from evalflows.compat.langchain.prompts import PromptTemplate
from evalflows.compat.langchain.schema import EvaluatorType, PairwiseStringEvaluator
from evalflows.compat.langchain.strings import StringEvaluator
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
    "StringEvaluator",
    "load_evaluator",
    "load_evaluators",
    "resolve_pairwise_criteria",
]


def __getattr__(name: str) -> Any:
    if name == "PRINCIPLES":
        raise ImportError(f"{__name__}.PRINCIPLES: not supported here: use {REMEDY}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
