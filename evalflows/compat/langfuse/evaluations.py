"""Langfuse's evaluations and items, and its functions adapted to those that evalflows calls."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial, update_wrapper
from typing import Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langsmith.conversion import dataset_id
from evalflows.compat.langsmith.user_functions import told_apart
from evalflows.engine.items import EvaluatorInputs
from evalflows.engine.views import evaluations_view, example_view
from evalflows.evaluators import views
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.views import Evaluations, ExampleView, Fields, ItemResult, with_attributes
from evalflows.specs.errors import InputError, short
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.metric_names import RETURNED_AS, kept_apart
from evalflows.specs.reference import version_of
from evalflows.specs.values import stored
from evalflows.store.attachments import opened_row
from evalflows.store.records import ExampleRow, JudgementRow, from_json
from evalflows.store.store import Store
from evalflows.telemetry.conventions import to_text
from evalflows.telemetry.views import ObservationView, SessionView, TraceView

__all__ = ["ITEM", "DatasetItem", "Item", "as_row", "dataset_item", "item_of", "wrapped"]

MISSING = ("failed", "not_attempted")

View = TraceView | ObservationView | SessionView

ITEM = ("input", "expected_output", "metadata")
"""The fields of an item of an experiment."""
_CONTENT = ("input", "output")

Function = Callable[..., Any]


class NoInputError(InputError):
    """An item has no input, without which no task is called."""


ARGUMENTS = ("input", "output", "expected_output", "metadata")
"""What Langfuse passes to every evaluator, and to a composite besides the evaluations."""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """A score, as an evaluator returns it."""

    name: str
    value: float | str | bool | None
    comment: str | None = None
    metadata: dict[str, Any] | None = None
    data_type: str | None = None
    config_id: str | None = None


_FIELDS = frozenset(field.name for field in fields(Evaluation))


@dataclass(slots=True, kw_only=True)
class ExperimentItemResult:
    """One item of an experiment: the task's output, and its evaluations."""

    item: Any
    output: Any
    evaluations: list[Evaluation] = field(default_factory=list)
    trace_id: str | None = None  # the run's id
    experiment_id: str | None = None

    @property
    def dataset_run_id(self) -> str | None:
        """The experiment's id if the item is one of a dataset; None for local data."""
        return self.experiment_id if isinstance(self.item, DatasetItem) else None


def evaluations_of(rows: Iterable[JudgementRow]) -> list[Evaluation]:
    """Return the scores of a run that have a value, under the names that their evaluators gave them."""
    return present(evaluations_view(rows))


class OfItem(Evaluations):
    """The evaluations of an item. If there is one, its fields are attributes here too: `evaluations.value`."""

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(name)
        if len(self) != 1:
            names = ", ".join(evaluation.name for evaluation in self) or "none"
            raise AttributeError(f"{name}: got the evaluations {names}, wanted one: take one by its name")
        return getattr(self[0], name)


def present(evaluations: Iterable[views.Evaluation]) -> list[Evaluation]:
    """Return the evaluations that have a value: as in Langfuse, others are left out. They are found by name too."""
    return OfItem(_of_view(evaluation) for evaluation in evaluations if evaluation.status == "scored")  # type: ignore


def complete(evaluations: Evaluations) -> list[Evaluation]:
    """Return the evaluations that a composite gets. Raise ValueError if one is missing: the composite would not say."""
    for evaluation in evaluations:
        if evaluation.status in MISSING:
            raise ValueError(f"{evaluation.name} has no score for this item, so composites of it have none")
    return present(evaluations)


def _of_view(evaluation: views.Evaluation) -> Evaluation:
    value = bool(evaluation.value) if evaluation.data_type == "BOOLEAN" else evaluation.value
    return Evaluation(
        name=evaluation.name,
        value=value,
        comment=evaluation.comment,
        metadata={name: value for name, value in (evaluation.metadata or {}).items() if name != RETURNED_AS} or None,
        data_type=evaluation.data_type,
        config_id=evaluation.config_id,
    )


def _usage(view: Any) -> dict[str, int]:
    counted = {"input": view.tokens_in, "output": view.tokens_out}
    known = {name: tokens for name, tokens in counted.items() if tokens is not None}
    return known | ({"total": sum(known.values())} if len(known) == 2 else {})


_THEIRS: Mapping[str, Callable[[Any], Any]] = {
    "type": lambda view: view.type.upper(),
    "total_cost": lambda view: view.cost_usd,
    "usage_details": _usage,
    "provided_model_name": lambda view: view.model,
    "is_root_observation": lambda view: view.parent_id is None,
}
"""Fields of Langfuse's that the views have under other names, or with other values."""


class Item:
    """A trace, an observation or a session, as a mapper gets it: fields are attributes and keys.

    With `raw`, the input and the output are text, as in the newer of Langfuse's interfaces.
    """

    __slots__ = ("_raw", "_view")

    def __init__(self, view: View, *, raw: bool = False) -> None:
        self._view = view
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = _THEIRS[name](self._view) if name in _THEIRS else getattr(self._view, name)
        except AttributeError:
            kind = type(self._view).__name__.removesuffix("View").lower()
            raise AttributeError(f"{kind}: has no {name!r}; docs/guides/langfuse.md lists what is supported") from None
        if self._raw and name in _CONTENT:
            return found if found is None or isinstance(found, str) else to_text(stored(found, name))
        return _as_items(found)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return all fields of the trace, the observation or the session."""
        return dict(stored(self._view, type(self._view).__name__))

    def __repr__(self) -> str:
        return f"<{type(self._view).__name__.removesuffix('View')} {self._view.id}>"


def _as_items(value: Any) -> Any:
    if isinstance(value, View):
        return Item(value)
    if isinstance(value, list) and value and isinstance(value[0], View):
        return [Item(view) for view in value]
    return with_attributes(value)


@ABSENT.of_objects()
@dataclass(slots=True, kw_only=True)
class DatasetItem:
    """An item of a dataset."""

    id: str
    input: Any
    expected_output: Any = None
    metadata: Any = None
    dataset_id: str | None = None
    dataset_name: str | None = None
    status: str = "ACTIVE"


def item_of(example: ExampleView, dataset: str | None) -> Any:
    """Return an example as tasks and results get it: of a dataset an object, of local data a mapping."""
    if dataset is None:
        return Fields({name: with_attributes(getattr(example, name)) for name in ITEM})
    return DatasetItem(
        id=example.id,
        input=with_attributes(example.input),
        expected_output=with_attributes(example.expected_output),
        metadata=with_attributes(example.metadata),
        dataset_id=dataset_id(dataset),
        dataset_name=dataset,
    )


def dataset_item(row: ExampleRow, dataset: str) -> DatasetItem:
    """Return a stored example as an item of a dataset."""
    item: DatasetItem = item_of(example_view(opened_row(Store(), row)), dataset)
    return replace(item, metadata=with_attributes(from_json(row.metadata)))  # none instead of an empty one


def as_row(item: Any, where: str) -> dict[str, Any]:
    """Return an item, a mapping or an object, as a row of a dataset. Raise InputError for anything else."""
    names = (*ITEM, "id")
    if isinstance(item, Mapping):
        if unknown := [str(name) for name in item if name not in names]:
            raise InputError(f"{where}: got the field {unknown[0]!r}, wanted only {', '.join(names)}")
        given = {name: item.get(name) for name in names}
    elif hasattr(item, "input"):
        given = {name: getattr(item, name, None) for name in names}
    else:
        raise InputError(f"{where}: got {short(item)}, wanted a mapping or an object with input and expected_output")
    if given["input"] is None:
        raise NoInputError(f"{where}: got no input, wanted one")
    row = {
        "inputs": wrapped(given["input"], "input"),
        "reference_outputs": None if given["expected_output"] is None else wrapped(given["expected_output"], "output"),
        "metadata": stored(given["metadata"], f"{where}: metadata"),
        "id": given["id"],
    }
    return {name: value for name, value in row.items() if value is not None}


def wrapped(value: Any, only: str) -> dict[str, Any]:
    """Return a value as a mapping from which `unwrapped` gives exactly this value."""
    simple = stored(value, only)
    return simple if isinstance(simple, dict) and simple.keys() != {only} else {only: simple}


def as_task(task: Any, dataset: str | None) -> Function:
    """Adapt a task to a target. A mapping of the single key `output` is kept as it is, which a target's would not be.

    Raise InputError if it cannot be called with `item`.
    """
    _check(task, "task", ("item",))

    def call(example: ExampleView) -> Any:
        returned = task(item=item_of(example, dataset))
        as_outputs = partial(wrapped, only="output")
        return _later(as_outputs, returned) if inspect.isawaitable(returned) else as_outputs(returned)

    return _in_place_of(task, call, "example")


async def _later(function: Function, returned: Any) -> Any:
    return function(await returned)


def as_evaluators(evaluators: Sequence[Any], composites: Sequence[Any], *, names_stand: bool) -> list[Any]:
    """Return evaluators, with the composites last, under names of their own: several may have the same function name.

    With `names_stand`, one may be called like a measure of runs, such as `cost`.
    """
    given = [
        *evaluators,
        *(composite if isinstance(composite, Mapping) else as_composite(composite) for composite in composites),
    ]
    return told_apart(given, str if names_stand else kept_apart)


def as_composite(composite: Any) -> Function:
    """Adapt a composite: it gets the evaluations that have a value, and none is made of missing ones.

    Raise InputError if it cannot be called with the arguments that Langfuse gives it.
    """
    _check(composite, "composite_evaluator", (*ARGUMENTS, "evaluations"))

    def call(**arguments: Any) -> Any:
        return composite(**arguments | {"evaluations": complete(arguments["evaluations"])})

    return _in_place_of(composite, call, *ARGUMENTS, "evaluations")


def as_run_evaluator(evaluator: Any, dataset: str | None) -> Function:
    """Adapt a run evaluator: it gets the items that the task answered, with Langfuse's objects."""
    if isinstance(evaluator, str | Mapping | EvaluatorSpec):
        return evaluator  # type: ignore[return-value]  # ours, by its name
    _check(evaluator, "run_evaluators", ("item_results",))

    def call(item_results: list[ItemResult]) -> Any:
        return evaluator(
            item_results=[_result(result, dataset) for result in item_results if result.run.outputs is not None]
        )

    return _in_place_of(evaluator, call, "item_results")


def as_mapper(mapper: Any, *, raw: bool) -> Any:
    """Adapt a mapper: it gets Langfuse's items, with their input and output as text if `raw`."""
    if not callable(mapper):
        return mapper  # paths, or a name

    def call(*items: Any, **named: Any) -> Any:
        mapped = mapper(*(Item(item, raw=raw) for item in items), **{k: Item(v, raw=raw) for k, v in named.items()})
        return _later(_exact, mapped) if inspect.isawaitable(mapped) else _exact(mapped)

    vars(update_wrapper(call, mapper))["version_parts"] = (raw, version_of(mapper))
    return call


def _exact(mapped: Any) -> Any:
    """Return what a mapper returned so that evaluators get exactly that, also mappings of the single key `output`."""
    is_mapping = isinstance(mapped, Mapping)
    found = {name: mapped.get(name) if is_mapping else getattr(mapped, name, None) for name in ARGUMENTS}
    if all(value is None for value in found.values()):
        return mapped  # not what a mapper has to return, as the flow will say
    for name, only in (("input", "input"), ("output", "output"), ("expected_output", "output")):
        if isinstance(simple := stored(found[name], name), dict):
            found[name] = wrapped(simple, only)
    return EvaluatorInputs(**found)


def _result(result: ItemResult, dataset: str | None) -> ExperimentItemResult:
    return ExperimentItemResult(
        item=item_of(result.item, dataset),
        output=with_attributes(result.output),
        evaluations=present(result.evaluations),
        trace_id=result.run.id,
    )


def _check(function: Any, where: str, names: Sequence[str]) -> None:
    """Raise InputError if a function cannot be called with these arguments."""
    wanted = f"wanted a function of {', '.join(names)}"
    if not callable(function):
        raise InputError(f"{where}: got {type(function).__name__}, {wanted}")
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {evaluator_name(function)!r}: {error}, {wanted}") from None


def _in_place_of(function: Any, call: Function, *names: str) -> Function:
    """Give a wrapper the name and the code of the user's function, and keyword parameters of these names."""
    update_wrapper(call, function).__name__ = evaluator_name(function)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
