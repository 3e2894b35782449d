"""Tasks that are sent to other processes by their names, not by their code.

Pickled as they are, Prefect's tasks and flows bring along the code of their functions and whatever it mentions.
"""

import copy
from dataclasses import dataclass
from importlib import import_module
from inspect import Signature, signature
from typing import Any, TypeVar

from prefect import Flow, Task
from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.tasks.retries import retries_of

Work = TypeVar("Work")


@dataclass(frozen=True)
class _Named:
    """The function of a task, by the name of the task."""

    module: str
    name: str

    @property
    def function(self) -> Any:
        return getattr(import_module(self.module), self.name).fn

    @property
    def __signature__(self) -> Signature:  # Prefect names parameters by it
        return signature(self.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


def chunk_task(task: Task[[Work], Work], spec: ExperimentSpec | ComparisonSpec) -> Task[[Work], Work]:
    """Return the task for the chunks of a run, with its retries, and so that the run's engine can send it."""
    task = task.with_options(**retries_of(spec))
    if not spec.task_runner.is_elsewhere:
        return task
    named, sent = _Named(task.fn.__module__, task.fn.__name__), copy.copy(task)
    sent.fn = named
    vars(sent)["__wrapped__"] = named
    return sent


def light_context(context: FlowRunContext, runner: Any) -> FlowRunContext:
    """Return the context of a flow run whose tasks run on an engine: it is sent with each of them.

    It has no parameters, which may hold the rows of a dataset, and not the code of the flow.
    """
    flow = Flow(fn=_nothing, name=context.flow.name if context.flow else None, task_runner=_OWN)
    flow_run = context.flow_run.model_copy(update={"parameters": {}}) if context.flow_run else None
    changes = {"task_runner": runner, "flow": flow, "flow_run": flow_run, "parameters": {}}
    return context.model_copy(update=changes)


def _nothing() -> None:
    """Stand in for the function of a flow in the processes of an engine, which do not call it."""


_OWN: Any = ThreadPoolTaskRunner(max_workers=1)
