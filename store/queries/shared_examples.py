"""The examples that experiments share: only these can be compared."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from evalflows.store.examples import Examples
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow, ExperimentRow
from evalflows.store.snapshots import load_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Examples that all experiments have with the same inputs, from the first snapshot, and counts of the others."""

    examples: Examples
    absent: int  # examples that some experiments lack
    changed: int  # examples whose inputs differ

    @property
    def left_out(self) -> int:
        return self.absent + self.changed


def shared_examples(store: Store, experiments: Sequence[ExperimentRow]) -> Shared:
    """Return the examples with the same id and the same inputs in all experiments."""
    snapshots = [*{row.snapshot_id: load_snapshot(store, row.snapshot_id) for row in experiments}.values()]
    first, *others = snapshots
    known = [frozenset(other.ids) for other in others]
    everywhere = [number for number, name in enumerate(first.ids) if all(name in ids for ids in known)]
    n_known = len(frozenset(first.ids).union(*known))
    shared = Shared(examples=first.select(everywhere), absent=n_known - len(everywhere), changed=0)
    for other in others:
        shared = with_same(shared, other, _inputs)
    return shared


def with_same(shared: Shared, other: Iterable[ExampleRow], text: Callable[[ExampleRow], str | None]) -> Shared:
    """Drop the shared examples that have another text in another snapshot."""
    texts = {example.example_id: _digest(text(example)) for example in other}
    same = [
        number for number, example in enumerate(shared.examples) if texts[example.example_id] == _digest(text(example))
    ]
    changed = len(shared.examples) - len(same)
    return replace(shared, examples=shared.examples.select(same), changed=shared.changed + changed)


def _inputs(example: ExampleRow) -> str:
    return example.inputs


def _digest(text: str | None) -> bytes | None:
    """Return a hash of a text, so that the texts of a whole snapshot need not be in memory."""
    return None if text is None else blake2b(text.encode(), digest_size=16).digest()
