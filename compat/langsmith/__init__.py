"""LangSmith's names and shapes: `from compat.langsmith import Client, evaluate, traceable, wrappers`."""

from compat.langsmith import evaluation, schemas, wrappers
from compat.langsmith.client import Client
from compat.langsmith.evaluation import RunEvaluator, aevaluate, evaluate
from compat.langsmith.run_helpers import traceable
from compat.langsmith.schemas import EvaluationResult

__all__ = [
    "Client",
    "EvaluationResult",
    "RunEvaluator",
    "aevaluate",
    "evaluate",
    "evaluation",
    "schemas",
    "traceable",
    "wrappers",
]
