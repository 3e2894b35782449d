"""Where a metric was measured before, and its values run by run: what plans are made from."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from store.catalog import ask, ask_arrow
from store.parquet import Store
from store.records import ExperimentRow

Runs = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBefore:
    """An experiment that is complete, and one version of a metric that it has numbers of."""

    experiment_id: str
    name: str
    run_group: str
    snapshot_id: str
    dataset_name: str | None
    repetitions: int
    started_at: datetime
    is_baseline: bool  # of its start
    evaluator_version: str
    is_yes_no: bool
    scored: int  # runs


def measured_before(store: Store, metric: str) -> list[MeasuredBefore]:
    """The complete experiments with numbers of a metric, the newest first."""
    (rows,) = ask(store, (_MEASURED, [metric]))
    return [MeasuredBefore(**dict(zip(MeasuredBefore.__slots__, row, strict=True))) for row in rows]


def run_values(store: Store, experiment: ExperimentRow, metric: str, evaluator_version: str) -> Runs:
    """A metric's values: a row an example, in the snapshot's order, a column a repetition; NaN where there is none."""
    given = [experiment.snapshot_id, experiment.experiment_id, metric, evaluator_version]
    found = ask_arrow(store, _VALUES, given)
    place, repetition, value = (found.column(name).to_numpy(zero_copy_only=False) for name in found.column_names)
    runs = np.full((experiment.n_examples, experiment.repetitions), np.nan)
    runs[place, repetition] = value
    return runs


_MEASURED = """
with measured as (
    select experiment_id, evaluator_version, bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as is_yes_no,
           count(value) filter (status = 'scored') as scored
    from scores where subject_kind = 'run' and turn is null and metric = $1 group by all
    union all
    select experiment_id, 'measured', false, count(value) from measures where metric = $1 group by all
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
), runs as (
    select example_id, repetition, metric, evaluator_version, value, status from scores
    where subject_kind = 'run' and turn is null and experiment_id = $2
    union all
    select example_id, repetition, metric, 'measured', value, status from measures where experiment_id = $2
)
select place, repetition, value from runs join places using (example_id)
where metric = $3 and evaluator_version = $4 and status = 'scored' and value is not null
"""
