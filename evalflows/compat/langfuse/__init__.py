"""Langfuse's API: `from evalflows.compat.langfuse import Evaluation, EvaluatorInputs, Langfuse, get_client`."""

from evalflows.compat.langfuse import api, batch_evaluation, experiment
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.batch_evaluation import (
    BatchEvaluationResult,
    BatchEvaluationResumeToken,
    EvaluatorInputs,
    EvaluatorStats,
)
from evalflows.compat.langfuse.client import Langfuse, get_client
from evalflows.compat.langfuse.evaluations import Evaluation
from evalflows.compat.langfuse.observations import observe, propagate_attributes

__all__ = [
    "BatchEvaluationResult", "BatchEvaluationResumeToken", "Evaluation", "EvaluatorInputs", "EvaluatorStats",
    "Langfuse", "api", "batch_evaluation", "experiment", "get_client", "observe", "propagate_attributes",
]  # fmt: skip


__getattr__ = ABSENT.of_module(__name__)
