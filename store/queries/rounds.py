"""Which examples two experiments of a run answered in the same rounds, so that their latencies can be compared."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRounds:
    """Arrays have shape (examples,), in the snapshot's order."""

    together: Mask  # whether both made all repetitions in the same rounds, without an answer from the ledger
    warm_up: Mask  # the examples of the first round, which pays for connections and caches

    def at(self, places: npt.NDArray[np.intp]) -> "SharedRounds":
        """The same of some examples."""
        return SharedRounds(together=self.together[places], warm_up=self.warm_up[places])


def shared_rounds(store: Store, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
    """Return the examples that two experiments answered in the same rounds; none if their answers were recorded."""
    together, warm_up = (np.zeros(candidate.n_examples, dtype=bool) for _ in range(2))
    if candidate.run_group == baseline.run_group and "recorded" not in (candidate.target_kind, baseline.target_kind):
        parameters = [candidate.experiment_id, baseline.experiment_id, candidate.repetitions, candidate.snapshot_id]
        for place, all_together, is_first in ask(store, (_ROUNDS, parameters))[0]:
            together[place], warm_up[place] = all_together, is_first
    return SharedRounds(together=together, warm_up=warm_up)


_ROUNDS = """
with runs as (
    select ours.example_id, ours.round_at,
           coalesce(ours.round_at = theirs.round_at, false)
           and coalesce(ours.calls_cached, 0) = 0 and coalesce(theirs.calls_cached, 0) = 0 as is_together
    from outputs as ours join outputs as theirs using (example_id, repetition)
    where ours.experiment_id = $1 and theirs.experiment_id = $2
), by_example as (
    select example_id, bool_and(is_together) and count(*) = $3 as together,
           coalesce(bool_or(round_at = (select min(round_at) from runs)), false) as warm_up
    from runs group by example_id
), places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $4
)
select place, together, warm_up from by_example join places using (example_id)
"""
