"""Items as Langfuse's functions get them: traces and observations of production, and items of experiments."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langsmith.views import dataset_id
from evalflows.evaluators.subject import ExampleView, Fields, unwrapped, with_attributes
from evalflows.specs.errors import InputError, short
from evalflows.store.records import ExampleRow, from_json
from evalflows.targets import as_fields
from evalflows.telemetry.fields import to_text
from evalflows.telemetry.views import ObservationView, SessionView, TraceView

View = TraceView | ObservationView | SessionView

ITEM = ("input", "expected_output", "metadata")
"""The fields of an item of an experiment."""
_CONTENT = ("input", "output")


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
            raise AttributeError(f"{kind}: has no {name!r}; docs/langfuse.md lists what is supported") from None
        if self._raw and name in _CONTENT:
            return found if found is None or isinstance(found, str) else to_text(as_fields(found))
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
        dumped: dict[str, Any] = as_fields(self._view)
        return {name: one.isoformat() if isinstance(one, datetime) else one for name, one in dumped.items()}

    def __repr__(self) -> str:
        return f"<{type(self._view).__name__.removesuffix('View')} {self._view.id}>"


def _as_items(value: Any) -> Any:
    if isinstance(value, View):
        return Item(value)
    if isinstance(value, list) and value and isinstance(value[0], View):
        return [Item(one) for one in value]
    return with_attributes(value)


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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method("DatasetItem", name)


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
    return DatasetItem(
        id=row.example_id,
        input=with_attributes(unwrapped(json.loads(row.inputs), "input")),
        expected_output=with_attributes(unwrapped(from_json(row.reference_outputs), "output")),
        metadata=with_attributes(from_json(row.metadata)),
        dataset_id=dataset_id(dataset),
        dataset_name=dataset,
    )


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
        raise InputError(f"{where}: got no input, wanted one")
    row = {
        "inputs": wrapped(given["input"], "input"),
        "reference_outputs": None if given["expected_output"] is None else wrapped(given["expected_output"], "output"),
        "metadata": as_fields(given["metadata"]),
        "id": given["id"],
    }
    return {name: value for name, value in row.items() if value is not None}


def wrapped(value: Any, only: str) -> dict[str, Any]:
    """Return a value as a mapping from which `unwrapped` gives exactly this value."""
    simple = as_fields(value)
    return simple if isinstance(simple, dict) and simple.keys() != {only} else {only: simple}


__all__ = ["ITEM", "DatasetItem", "Item", "as_row", "dataset_item", "item_of", "wrapped"]
