"""LangSmith's API: `from evalflows.compat.langsmith import Client, evaluate, traceable, wrappers`."""

from evalflows.compat.langsmith import evaluation, schemas, wrappers
from evalflows.compat.langsmith.client import Client
from evalflows.compat.langsmith.evaluation import (
    RunEvaluator,
    aevaluate,
    aevaluate_existing,
    evaluate,
    evaluate_existing,
)
from evalflows.compat.langsmith.run_helpers import traceable
from evalflows.compat.langsmith.schemas import EvaluationResult

__all__ = [
    "Client",
    "EvaluationResult",
    "RunEvaluator",
    "aevaluate",
    "aevaluate_existing",
    "evaluate",
    "evaluate_existing",
    "evaluation",
    "schemas",
    "traceable",
    "wrappers",
]
