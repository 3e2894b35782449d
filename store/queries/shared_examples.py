"""The examples that experiments share: only these can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow, ExperimentRow
from evalflows.store.snapshots import load_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Examples that all experiments have with the same inputs, from the first snapshot, and counts of the others."""

    examples: Sequence[ExampleRow]
    absent: int  # examples that some experiments lack
    changed: int  # examples whose inputs differ

    @property
    def left_out(self) -> int:
        return self.absent + self.changed


def shared_examples(store: Store, experiments: Sequence[ExperimentRow]) -> Shared:
    """Return the examples with the same id and the same inputs in all experiments."""
    snapshots = {row.snapshot_id: load_snapshot(store, row.snapshot_id) for row in experiments}
    first, *others = snapshots.values()
    inputs = [{example.example_id: example.inputs for example in other} for other in others]
    everywhere = [example for example in first if all(example.example_id in by_id for by_id in inputs)]
    examples = [
        example for example in everywhere if all(by_id[example.example_id] == example.inputs for by_id in inputs)
    ]
    known = {example.example_id for snapshot in snapshots.values() for example in snapshot}
    return Shared(examples=examples, absent=len(known) - len(everywhere), changed=len(everywhere) - len(examples))
