"""LangSmith's API: `from evalflows.compat.langsmith import Client, evaluate, traceable, wrappers`."""

from evalflows.compat.langsmith import evaluation, run_helpers, run_trees, schemas, testing, utils, wrappers
from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.client import AsyncClient, Client
from evalflows.compat.langsmith.evaluation import (
    RunEvaluator,
    aevaluate,
    aevaluate_existing,
    evaluate,
    evaluate_existing,
)
from evalflows.compat.langsmith.run_helpers import get_current_run_tree, trace, traceable, tracing_context
from evalflows.compat.langsmith.run_trees import RunTree
from evalflows.compat.langsmith.schemas import EvaluationResult
from evalflows.compat.langsmith.testing import expect, test, unit

__all__ = [
    "AsyncClient", "Client", "EvaluationResult", "RunEvaluator", "RunTree", "aevaluate", "aevaluate_existing",
    "evaluate", "evaluate_existing", "evaluation", "expect", "get_current_run_tree", "run_helpers", "run_trees",
    "schemas", "test", "testing", "trace", "traceable", "tracing_context", "unit", "utils", "wrappers",
]  # fmt: skip


__getattr__ = ABSENT.of_module(__name__)
