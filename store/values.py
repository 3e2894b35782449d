"""The values of an experiment's metrics, example by example: what statistics are made from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.catalog import ask, ask_arrow
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
    weights: Values  # one over the share of such examples that was judged: 1 where all were


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How an example's repetitions came out by one metric. The arrays have one element an example, in the snapshot's
    order."""

    passed: Values
    scored: Values


def clusters_of(store: Store, snapshot_id: str) -> list[str | None]:
    """What each example was sampled with, in the snapshot's order."""
    found = store.query("select cluster from source.examples where snapshot_id = ? order by position", [snapshot_id])
    return [cluster for (cluster,) in found]


def metric_values(store: Store, experiment: ExperimentRow) -> list[MetricValues]:
    """Every metric of an experiment that is a number, by name; none of those that are labels."""
    given = [experiment.snapshot_id, experiment.experiment_id, experiment.repetitions]
    found = _columns(ask_arrow(store, _BY_METRIC, given))
    return [_values(experiment, one) for one in found if one["is_number"]]


def _columns(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Each row; its lists as arrays."""
    lists = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if pa.types.is_list(kind)]
    single = table.drop_columns(lists).to_pylist()
    for number, row in enumerate(single):
        arrays = {name: table.column(name)[number].values.to_numpy(zero_copy_only=False) for name in lists}
        yield {**row, **arrays}


def _values(experiment: ExperimentRow, found: dict[str, Any]) -> MetricValues:
    """An example without a row is missing: it was not attempted."""
    places, count = found["places"], experiment.n_examples
    values, missing, weights = np.full(count, np.nan), np.ones(count, dtype=bool), np.ones(count)
    values[places], missing[places], weights[places] = found["means"], found["missing"], found["weights"]
    return MetricValues(
        metric=found["metric"],
        evaluator=found["evaluator"],
        evaluator_version=found["evaluator_version"],
        is_yes_no=found["is_yes_no"],
        is_binary=found["is_yes_no"] and experiment.repetitions == 1,
        values=values,
        missing=missing,
        scored=found["scored"],
        lost=found["lost"],
        weights=weights,
    )


def trials(
    store: Store, experiment: ExperimentRow, metric: MetricValues, *, passes_from: float, higher_is_better: bool
) -> Trials:
    """How many repetitions of each example passed, and how many were scored at all."""
    which = [experiment.experiment_id, metric.metric, metric.evaluator_version]
    sign = 1.0 if higher_is_better else -1.0
    order, found = ask(store, (_ORDER, [experiment.snapshot_id]), (_PASSED, [*which, sign, sign * passes_from]))
    places = {example: place for place, (example,) in enumerate(order)}
    passed, scored = np.zeros(len(places)), np.zeros(len(places))
    for example, good, count in found:
        passed[places[example]], scored[places[example]] = good, count
    return Trials(passed=passed, scored=scored)


_ORDER = "select example_id from examples where snapshot_id = ? order by position"

_BY_METRIC = """
with places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $1
), runs as (
    select metric, evaluator, evaluator_version, example_id, value, status, data_type, sampling_rate
    from scores where subject_kind = 'run' and turn is null and experiment_id = $2
    union all
    select metric, 'measured', 'measured', example_id, value, status, 'NUMERIC', null
    from measures where experiment_id = $2
), by_example as (
    select metric, evaluator_version, example_id,
           any_value(evaluator) as evaluator,
           avg(value) filter (status = 'scored') as mean,
           count(*) filter (status = 'scored') as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as lost,
           count(*) filter (status = 'scored' and value is null) as labelled,
           count(*) as runs,
           bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as yes_no,
           min(sampling_rate) as rate
    from runs group by metric, evaluator_version, example_id
)
select metric, evaluator_version, any_value(evaluator) as evaluator,
       count(mean) > 0 or sum(labelled) = 0 as is_number,
       bool_and(yes_no) as is_yes_no,
       sum(scored)::bigint as scored,
       sum(lost)::bigint as lost,
       list(place) as places,
       list(coalesce(mean, 'nan'::double)) as means,
       list(lost > 0 or runs < $3) as missing,
       list(1 / coalesce(rate, 1.0)) as weights
from by_example join places using (example_id)
group by metric, evaluator_version
order by metric, evaluator_version
"""

_PASSED = """
select example_id, count(*) filter ($4 * value >= $5), count(*) from (
    select experiment_id, metric, evaluator_version, example_id, value from scores
    where subject_kind = 'run' and turn is null and status = 'scored' and value is not null
    union all
    select experiment_id, metric, 'measured', example_id, value from measures where status = 'scored'
)
where experiment_id = $1 and metric = $2 and evaluator_version = $3
group by example_id
"""
