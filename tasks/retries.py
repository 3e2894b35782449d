"""Which failures Prefect retries, and how often."""

from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec


class TransientFailuresError(Exception):
    """Some calls of a chunk failed, and a retry may succeed."""


def retries_of(spec: ExperimentSpec | ComparisonSpec) -> dict[str, Any]:
    """Return the task options for chunks: the number of retries, and the delay before each."""
    delays = [spec.chunk_retry_delay_s * 2.0**retry for retry in range(spec.chunk_retries)]
    return {"retries": spec.chunk_retries, "retry_delay_seconds": delays}


def is_last_attempt() -> bool:
    """Whether Prefect will not retry this task, so that failures must be stored as they are."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def only_transient(task: Task[..., object], run: TaskRun, state: State[object]) -> bool:
    """Prefect's retry condition: retry chunks with transient failures, but not errors in our own code."""
    return isinstance(state.data, TransientFailuresError)
