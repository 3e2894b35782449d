"""Examples that several experiments share, and rounds in which they were answered together; their values at paths such
as `metadata.topic`, and the examples of a slice."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evalflows.specs.columns import at_path
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import as_key
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import SlicedMetric, sliced_metric
from evalflows.store.queries.values import Mask
from evalflows.store.records import ExampleRow, ExperimentRow, from_json
from evalflows.store.snapshots import Examples, load_snapshot
from evalflows.store.sql import ask
from evalflows.store.store import Store

MAX_SHOWN = 10
"""Most values of a field that a message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRounds:
    """Arrays have shape (examples,), in the snapshot's order."""

    together: Mask  # whether both made all repetitions in the same rounds, without the ledger
    warm_up: Mask  # the example of the first round, which pays for cold caches
    from_ledger: Mask  # whether a side had an answer from the ledger

    def at(self, places: npt.NDArray[np.intp]) -> "SharedRounds":
        """Return the rounds of some examples."""
        return SharedRounds(
            together=self.together[places], warm_up=self.warm_up[places], from_ledger=self.from_ledger[places]
        )


def shared_rounds(store: Store, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
    """Return the examples that two experiments answered in the same rounds; none if their answers were recorded."""
    masks = np.zeros((3, candidate.n_examples), dtype=bool)
    is_recorded = "recorded" in (candidate.target_kind, baseline.target_kind)
    if candidate.run_group == baseline.run_group and not is_recorded:
        experiments = [candidate.experiment_id, baseline.experiment_id]
        parameters = [*experiments, candidate.repetitions, candidate.snapshot_id]
        for index, *of_example in ask(store, (_ROUNDS, parameters))[0]:
            masks[:, index] = of_example
    together, warm_up, from_ledger = masks
    return SharedRounds(together=together, warm_up=warm_up, from_ledger=from_ledger)


_ROUNDS = """
with runs as (
    select ours.example_id, ours.round_at, coalesce(ours.round_at = theirs.round_at, false) as is_together,
           coalesce(ours.calls_cached, 0) + coalesce(theirs.calls_cached, 0) > 0 as is_cached
    from outputs as ours join outputs as theirs using (example_id, repetition)
    where ours.experiment_id = $1 and theirs.experiment_id = $2
), by_example as (
    select example_id, bool_and(is_together and not is_cached) and count(*) = $3 as together,
           coalesce(bool_or(round_at <= first_round_at), false) as warm_up, bool_or(is_cached) as from_ledger
    from runs, (select min(round_at) as first_round_at from runs) as first
    group by example_id
), places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $4
)
select place, together, warm_up, from_ledger from by_example join places using (example_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExamples:
    """Examples that all experiments have with the same inputs, from the first snapshot, and counts of the others."""

    examples: Examples
    absent: int  # examples that some experiments lack
    changed: int  # examples whose inputs differ

    @property
    def left_out(self) -> int:
        return self.absent + self.changed


def shared_examples(store: Store, experiments: Sequence[ExperimentRow]) -> SharedExamples:
    """Return the examples with the same id and the same inputs in all experiments."""
    return shared_among([*{row.snapshot_id: load_snapshot(store, row.snapshot_id) for row in experiments}.values()])


def shared_among(snapshots: Sequence[Examples]) -> SharedExamples:
    """Return the examples with the same id and the same inputs in all snapshots."""
    first, *others = snapshots
    known = [frozenset(other.ids) for other in others]
    everywhere = [number for number, name in enumerate(first.ids) if all(name in ids for ids in known)]
    n_known = len(frozenset(first.ids).union(*known))
    shared = SharedExamples(examples=first.select(everywhere), absent=n_known - len(everywhere), changed=0)
    for other in others:
        shared = with_same(shared, other, "inputs")
    return shared


def with_same(
    shared: SharedExamples, other: Iterable[ExampleRow], field: Literal["inputs", "reference_outputs"]
) -> SharedExamples:
    """Drop the shared examples that have another text in another snapshot."""
    texts = {example.example_id: _digest(getattr(example, field)) for example in other}
    same = [
        number
        for number, example in enumerate(shared.examples)
        if texts[example.example_id] == _digest(getattr(example, field))
    ]
    changed = len(shared.examples) - len(same)
    return replace(shared, examples=shared.examples.select(same), changed=shared.changed + changed)


def _digest(text: str | None) -> bytes | None:
    """Return a hash of a text, so that the texts of a whole snapshot need not be in memory."""
    return None if text is None else blake2b(text.encode(), digest_size=16).digest()


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
