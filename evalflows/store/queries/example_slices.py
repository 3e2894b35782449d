"""The values of examples at paths such as `metadata.topic`, and the examples of a slice."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.specs.columns import at_path
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import as_key
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import SlicedMetric, sliced_metric
from evalflows.store.records import ExampleRow, ExperimentRow, from_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

MAX_SHOWN = 10
"""Most values of a field that a message lists."""


def value_at(example: ExampleRow, path: str) -> Any:
    """Return an example's value at a path such as `split` or `metadata.topic`. Raise InputError if it has none."""
    fields = {
        "inputs": json.loads(example.inputs),
        "reference_outputs": from_json(example.reference_outputs),
        "metadata": from_json(example.metadata) or {},
        "split": example.split,
        "cluster": example.cluster,
    }
    return at_path(fields, path)


def slice_value(example: ExampleRow, path: str) -> str | None:
    """Return an example's value at a path as a rule names it: a text, or else as JSON. None without a value."""
    if path in ("split", "cluster"):
        return example.split if path == "split" else example.cluster
    try:
        return as_key(value_at(example, path))
    except InputError:
        return None


def has_value(example: ExampleRow, path: str) -> bool:
    """Return whether an example has a value at a path."""
    try:
        return value_at(example, path) is not None
    except InputError:
        return False


def slice_values(store: Store, snapshot_id: str, path: str) -> list[str | None]:
    """Return each example's value at a path, in the snapshot's order; None if it has none."""
    return [slice_value(example, path) for example in load_snapshot(store, snapshot_id)]


def places_of(values: Sequence[str | None], sliced: SlicedMetric) -> npt.NDArray[np.intp]:
    """Return the positions of the examples with the slice's value."""
    return np.flatnonzero([value == sliced.value for value in values]).astype(np.intp)


def ids_in(store: Store, row: ExperimentRow, sliced: SlicedMetric) -> frozenset[str]:
    """Return the ids of an experiment's examples in a slice."""
    examples = load_snapshot(store, row.snapshot_id)
    return frozenset(
        example.example_id for example in examples if slice_value(example, sliced.path or "") == sliced.value
    )


def check_slices(gates: Iterable[GateSpec], examples: Iterable[ExampleRow]) -> None:
    """Raise InputError for a gate's slice that holds no example, most likely a typo."""
    named = [(gate, sliced) for gate in gates for name in gate.metrics if (sliced := sliced_metric(name)).path]
    counts: dict[str, Counter[str | None]] = {sliced.path: Counter() for _, sliced in named if sliced.path}
    for example in examples if counts else ():
        for path, counter in counts.items():
            counter[slice_value(example, path)] += 1
    for gate, sliced in named:
        found = counts[sliced.path or ""]
        if not found[sliced.value]:
            raise InputError(f"gate {gate.name!r}: {sliced.name}: no example has {sliced.slice}, {_known(found)}")


def check_slices_of(store: Store, gate: GateSpec, row: ExperimentRow) -> None:
    """Raise InputError for a gate's slice that holds no example of an experiment."""
    check_slices([gate], load_snapshot(store, row.snapshot_id))


def _known(found: Counter[str | None]) -> str:
    values = sorted(value for value in found if value is not None and found[value])
    if not values:
        return "and none has this field: wanted split, or a path such as metadata.topic"
    return f"wanted one of: {', '.join(values[:MAX_SHOWN])}{', …' if len(values) > MAX_SHOWN else ''}"
