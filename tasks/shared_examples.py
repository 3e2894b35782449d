"""Which examples several experiments share: only these can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from store.parquet import Store
from store.records import ExampleRow, ExperimentRow
from store.snapshots import load_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The examples that all of them have with the same inputs, as the first experiment froze them, and the others."""

    examples: Sequence[ExampleRow]
    absent: int  # examples that some experiment does not have
    changed: int  # examples whose inputs are not the same in all

    @property
    def left_out(self) -> int:
        return self.absent + self.changed


def shared_examples(store: Store, experiments: Sequence[ExperimentRow]) -> Shared:
    """Examples are the same by their ids, and if what was asked is the same."""
    found = {row.snapshot_id: load_snapshot(store, row.snapshot_id) for row in experiments}
    first, *others = found.values()
    inputs = [{example.example_id: example.inputs for example in one} for one in others]
    everywhere = [example for example in first if all(example.example_id in one for one in inputs)]
    examples = [one for one in everywhere if all(other[one.example_id] == one.inputs for other in inputs)]
    known = {example.example_id for one in found.values() for example in one}
    return Shared(examples=examples, absent=len(known) - len(everywhere), changed=len(everywhere) - len(examples))
