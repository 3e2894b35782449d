"""The values of an experiment's metrics, example by example: what statistics are made from."""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from store.catalog import ask
from store.parquet import Store
from store.records import ExperimentRow

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValues:
    """One metric of one experiment. The arrays have one element an example, in the snapshot's order."""

    metric: str
    evaluator: str
    evaluator_version: str
    is_yes_no: bool  # each run's value is 0 or 1
    is_binary: bool  # and so is each example's: it has one run
    values: Values  # the mean over an example's repetitions; NaN where none was scored
    missing: npt.NDArray[np.bool_]  # whether a repetition failed, or was not attempted
    scored: int  # runs
    lost: int  # runs that failed or were not attempted


class _Row(NamedTuple):
    metric: str
    evaluator: str
    version: str
    example: str
    mean: float | None
    scored: int
    lost: int
    labelled: int
    runs: int
    yes_no: bool


def metric_values(store: Store, experiment: ExperimentRow) -> list[MetricValues]:
    """Every metric of an experiment that is a number, by name."""
    order, found = ask(store, (_ORDER, [experiment.snapshot_id]), (_BY_EXAMPLE, [experiment.experiment_id]))
    rows = [_Row(*row) for row in found]
    places = {example: place for place, (example,) in enumerate(order)}
    groups = groupby(rows, key=lambda row: (row.metric, row.version))
    made = [_values(experiment, places, list(group)) for _, group in groups]
    return [values for values in made if values is not None]


def _values(experiment: ExperimentRow, places: dict[str, int], rows: list[_Row]) -> MetricValues | None:
    """None for a metric of labels. An example without a row is missing: it was not attempted."""
    if all(row.mean is None for row in rows) and any(row.labelled for row in rows):
        return None
    values, missing = np.full(len(places), np.nan), np.ones(len(places), dtype=bool)
    for row in rows:
        values[places[row.example]] = np.nan if row.mean is None else row.mean
        missing[places[row.example]] = row.lost > 0 or row.runs < experiment.repetitions
    yes_no = all(row.yes_no for row in rows)
    return MetricValues(
        metric=rows[0].metric,
        evaluator=rows[0].evaluator,
        evaluator_version=rows[0].version,
        is_yes_no=yes_no,
        is_binary=yes_no and experiment.repetitions == 1,
        values=values,
        missing=missing,
        scored=sum(row.scored for row in rows),
        lost=sum(row.lost for row in rows),
    )


_ORDER = "select example_id from examples where snapshot_id = ? order by position"

_BY_EXAMPLE = """
with runs as (
    select experiment_id, metric, evaluator, evaluator_version, example_id, value, label, status, data_type from scores
    where subject_kind = 'run' and turn is null
    union all
    select experiment_id, metric, 'measured', 'measured', example_id, value, null, status, 'NUMERIC' from measures
)
select metric, any_value(evaluator), evaluator_version, example_id,
       avg(value) filter (status = 'scored'),
       count(*) filter (status = 'scored'),
       count(*) filter (status in ('failed', 'not_attempted')),
       count(*) filter (status = 'scored' and value is null),
       count(*),
       bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN')
from runs where experiment_id = ?
group by metric, evaluator_version, example_id
order by metric, evaluator_version
"""
