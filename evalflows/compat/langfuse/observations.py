"""Langfuse's `observe` and observations: a function's calls, or a block, as steps of the current run.

Outside a run nothing is recorded: production is traced by Langfuse's own SDK, or by any of OpenTelemetry.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langsmith.run_helpers import traceable
from evalflows.compat.langsmith.run_trees import RunTree, get_current_run_tree, stepping
from evalflows.compat.refusal import refusing

_KINDS = {"generation": "llm"}
"""Our kinds of steps, by Langfuse's; others have the same name."""

_NO_TRACE = "a step belongs to the run in which it is made"


@refusing(transform_to_string="the items that a generator yields are not recorded")
def observe(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    as_type: str | None = None,
    capture_input: bool | None = None,
    capture_output: bool | None = None,
    transform_to_string: Callable[..., str] | None = None,
) -> Any:
    """Record each call of a sync or async function as a step of the current run; outside a run, just call it."""
    decorate = traceable(
        run_type=_KINDS.get(as_type or "span", as_type or "span"),
        name=name,
        process_inputs=_nothing if capture_input is False else None,
        process_outputs=_nothing if capture_output is False else None,
    )
    return decorate if func is None else decorate(func)


def _nothing(captured: Any) -> dict[str, Any]:
    return {}


@contextmanager
def propagate_attributes(**attributes: Any) -> Iterator[None]:
    """Do nothing: users, sessions and tags are those of production; an experiment has its own tags and metadata."""
    yield


@ABSENT.of_objects()
class Observation:
    """A step of the current run that has begun."""

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree

    @property
    def id(self) -> str | None:
        return self._tree.id

    def update(self, *, input: Any = None, output: Any = None, metadata: Any = None, **fields: Any) -> "Observation":  # noqa: A002
        """Add to what is recorded. Other fields, such as `model` and `level`, become metadata of the step."""
        if input is not None:
            self._tree.add_inputs(_named("input", input))
        if output is not None:
            self._tree.add_outputs(_named("output", output))
        given = {name: value for name, value in fields.items() if value is not None}
        self._tree.add_metadata(given if metadata is None else given | _named("metadata", metadata))
        return self

    def set_trace_io(self, *, input: Any = None, output: Any = None) -> "Observation":  # noqa: A002
        """Do nothing: a run's input is the item's, and its output what the task returns."""
        return self

    @staticmethod
    def start_as_current_observation(**given: Any) -> Any:
        return observation(**given)


@refusing(trace_context=_NO_TRACE)
@contextmanager
def observation(
    *,
    trace_context: Any = None,
    name: str,
    as_type: str = "span",
    input: Any = None,  # noqa: A002 Langfuse's name
    output: Any = None,
    metadata: Any = None,
    version: str | None = None,
    level: str | None = None,
    status_message: str | None = None,
    completion_start_time: Any = None,
    model: str | None = None,
    model_parameters: Mapping[str, Any] | None = None,
    usage_details: Mapping[str, int] | None = None,
    cost_details: Mapping[str, float] | None = None,
    prompt: Any = None,
    end_on_exit: bool | None = None,
) -> Iterator[Observation]:
    """Record a block as a step of the current run. `usage_details` and `cost_details` stay with the step; what a
    run costs is counted by wrapped clients."""
    with stepping(RunTree(name, _KINDS.get(as_type, as_type), inputs=_named("input", input))) as tree:
        given: dict[str, Any] = {"version": version, "level": level, "status_message": status_message, "model": model}
        given |= {"model_parameters": model_parameters, "usage_details": usage_details, "cost_details": cost_details}
        yield Observation(tree).update(output=output, metadata=metadata, **given)


def update_current(**given: Any) -> None:
    """Add to what is recorded of the innermost step; outside of steps, nothing."""
    if (tree := get_current_run_tree()) is not None:
        Observation(tree).update(**given)


def _named(name: str, value: Any) -> dict[str, Any]:
    return {} if value is None else dict(value) if isinstance(value, Mapping) else {name: value}
