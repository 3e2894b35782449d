"""What earlier runs measured, for an estimate of how many examples a run needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from evalflows.store.arrow import np
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask_arrow, ask_records
from evalflows.store.store import Store

if TYPE_CHECKING:
    import numpy.typing as npt

Runs: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBefore:
    """A complete experiment, and one evaluator version of a numeric metric."""

    experiment_id: str
    name: str
    run_group: str
    snapshot_id: str
    dataset_name: str | None
    repetitions: int
    started_at: datetime
    is_baseline: bool  # of its run group
    evaluator_version: str
    is_yes_no: bool
    scored: int  # runs


def measured_before(store: Store, metric: str) -> list[MeasuredBefore]:
    """Return the complete experiments with values of a metric, newest first."""
    return ask_records(store, MeasuredBefore, _MEASURED, [metric])


def run_values(store: Store, experiment: ExperimentRow, metric: str, evaluator_version: str) -> Runs:
    """Return a metric's values, shape (examples, repetitions), in the snapshot's order; NaN if there is none."""
    parameters = [experiment.snapshot_id, experiment.experiment_id, metric, evaluator_version]
    table = ask_arrow(store, _VALUES, parameters)
    index, repetition, value = (table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names)
    runs = np.full((experiment.n_examples, experiment.repetitions), np.nan)
    runs[index, repetition] = value
    return runs


_MEASURED = """
with measured as (
    select experiment_id, evaluator_version, bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as is_yes_no,
           count(value) filter (status = 'scored') as scored
    from run_values where metric = $1 group by all
)
select experiment_id, e.name, e.run_group, e.snapshot_id, e.dataset_name, e.repetitions, e.started_at,
       coalesce(coalesce(e.spec ->> '$.baseline', e.spec ->> '$.targets[0].name') = e.target, false) as is_baseline,
       m.evaluator_version, m.is_yes_no, m.scored
from experiments e join measured m using (experiment_id)
where e.state = 'completed' and m.scored > 0
order by e.started_at desc, e.experiment_id desc
"""

_VALUES = """
with places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $1
)
select place, repetition, value from run_values join places using (example_id)
where experiment_id = $2 and metric = $3 and evaluator_version = $4 and status = 'scored' and value is not null
"""
