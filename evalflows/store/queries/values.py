"""The values of an experiment's metrics per example and per run, for statistics, on all or some examples."""

from __future__ import annotations  # types of libraries that are imported when first used

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.layout import quoted
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask, ask_columns
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.store.query_process import RowsOf

COLUMNS = "example_id, position, split, cluster, inputs, reference_outputs, metadata"
"""The columns that a condition may name; the last three are JSON."""

_NUMBERED = f"select {COLUMNS}, row_number() over (order by position) - 1 as place"

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MANY_RUNS, VERY_MANY_RUNS = 150_000, 500_000
"""Runs of an experiment from which statistics use little memory, and from which its metrics are read one by one."""

MEASURED = "measured"
"""The evaluator of built-in measures, in the view `run_values`."""

_ORDER = "select example_id from examples where snapshot_id = ? order by position"

_METRICS = "select distinct metric from run_values where experiment_id = ? order by metric"

_OF_METRIC = "from run_values where experiment_id = $2 and metric = coalesce($4, metric)"

_PASSED = """
select example_id, count(*) filter ($4 * value >= $5), count(*) from run_values
where experiment_id = $1 and metric = $2 and evaluator_version = $3 and status = 'scored' and value is not null
group by example_id
"""

_RUNS = """
select metric, evaluator, evaluator_version, example_id, repetition, value, status, data_type, sampling_rate
from run_values where experiment_id = $1 and list_contains($2, metric)
"""


def places_where(store: Store, snapshot_id: str, condition: str, rows: RowsOf | None = None) -> npt.NDArray[np.intp]:
    """Return the positions, in the snapshot's order, of the examples for which a condition holds.

    `rows` runs the query, by default in a process of its own with limits of time and memory. Raise InputError for
    anything else than a condition, for one that DuckDB rejects, and beyond a limit.
    """
    from evalflows.store.query_process import OF_COMMANDS, QueryProcesses  # late: it loads multiprocessing

    store.verify([snapshot_id], {"examples"})
    numbered = f"{_NUMBERED} from examples where snapshot_id = {quoted(snapshot_id)}"
    query = f"from ({numbered}) select list(place order by place) where\n{condition}"
    with closing(QueryProcesses(store.layout.root, OF_COMMANDS)) as queries:
        try:
            found = (rows or queries.rows)(query)
        except InputError as error:
            such_as = f"a condition is on {COLUMNS}, such as metadata->>'topic' = 'billing'"
            raise InputError(f"where {condition!r}: {error}; {such_as}") from error
    if len(found) != 1:
        raise InputError(f"where {condition!r}: got more than a condition, wanted one on {COLUMNS}")
    return np.array(found[0][0] or [], dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValues:
    """One metric of one experiment. Arrays have shape (examples,), in the snapshot's order."""

    metric: str
    evaluator: str
    evaluator_version: str
    is_yes_no: bool  # its evaluator declares yes or no
    is_binary: bool  # each example's value is one of two: one repetition, of yes/no or of numbers that are never others
    values: Values  # means over repetitions; NaN if none was scored
    missing: npt.NDArray[np.bool_]  # whether a repetition failed or was not attempted
    scored: int  # runs
    n_missing: int  # runs that failed or were not attempted
    weights: Values  # inverse sampling rates; 1 without sampling
    are_0_or_1: bool = False  # whether all scored runs are, at least one of them
    quarantine: Values | None = None  # what the examples weigh in verdicts, at most 1; None if none is in quarantine
    missing_share: Values | None = None  # of an example's runs, of those that it applies to; None: all where missing
    inapplicable: Values | None = None  # the share of runs that it does not apply to; None: all that have no value

    @property
    def missing_part(self) -> Values:
        """The share of each example that is missing."""
        return self.missing.astype(np.float64) if self.missing_share is None else self.missing_share

    @property
    def inapplicable_part(self) -> Values:
        """The share of each example's runs that the metric does not apply to; NaN if that is not known: of examples
        that were not drawn, and in samples of which only the values are known."""
        if self.inapplicable is not None:
            return self.inapplicable
        is_sampled = self.weights.max(initial=1.0) > 1
        return np.where(np.isnan(self.values) & ~self.missing, np.nan if is_sampled else 1.0, 0.0)

    def without(self, where: Mask) -> MetricValues:
        """Return the values without some examples, which then count neither as scored nor as missing."""
        return replace(
            self,
            values=np.where(where, np.nan, self.values),
            missing=self.missing & ~where,
            missing_share=None if self.missing_share is None else np.where(where, 0.0, self.missing_share),
            inapplicable=np.where(where, np.nan, self.inapplicable_part),
        )

    @property
    def weight_in_quarantine(self) -> Values:
        return np.ones(self.values.size) if self.quarantine is None else self.quarantine

    @property
    def counted(self) -> Values:
        """The weight of each example in a mean: by its sampling rate, and in quarantine."""
        return self.weights if self.quarantine is None else self.weights * self.quarantine

    @property
    def n_in_quarantine(self) -> int:
        """The examples that weigh less than others, or nothing."""
        return 0 if self.quarantine is None else int((self.quarantine < 1).sum())

    def in_quarantine(self, weights: Values) -> MetricValues:
        """Return the values with such weights; those that weigh nothing count neither as scored nor as missing."""
        return replace(self.without(weights == 0), quarantine=weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Numbers of passed and scored repetitions. Arrays have shape (examples,), in the snapshot's order."""

    passed: Values
    scored: Values


def are_many(runs: int) -> bool:
    """Return whether statistics on so many runs are computed with little memory, which takes longer."""
    return runs > MANY_RUNS


def clusters_of(store: Store, snapshot_id: str) -> list[str | None] | None:
    """Return each example's cluster, in the snapshot's order; None if no example has one."""
    with store.reading(only={"snapshot_id": [snapshot_id]}):
        ((count,),) = store.query("select count(cluster) from source.examples where snapshot_id = ?", [snapshot_id])
        if not count:
            return None
        rows = store.query("select cluster from source.examples where snapshot_id = ? order by position", [snapshot_id])
    return [cluster for (cluster,) in rows]


def metric_values(store: Store, experiment: ExperimentRow) -> Iterator[MetricValues]:
    """Yield every numeric metric of an experiment, by name; categorical metrics are omitted.

    Those of large experiments are read one by one, each when it is asked for.
    """
    parameters = [experiment.snapshot_id, experiment.experiment_id, experiment.repetitions]
    query = _by_metric(_ONLY_RUN if experiment.repetitions == 1 else _MEANS)
    metrics: list[str | None] = [None]  # all at once
    if experiment.n_examples * experiment.repetitions > VERY_MANY_RUNS:
        metrics = [metric for (metric,) in ask(store, (_METRICS, [experiment.experiment_id]))[0]]
    for metric in metrics:
        with store.reading(only={"experiment_id": [experiment.experiment_id], "snapshot_id": [experiment.snapshot_id]}):
            found = ask_columns(store, query, [*parameters, metric])
        columns = [column if name in _LISTS else column.tolist() for name, column in found.items()]
        for cells in zip(*columns, strict=True):
            row = dict(zip(found, cells, strict=True))
            if row["is_number"]:
                yield _values(experiment, row)


def _values(experiment: ExperimentRow, row: dict[str, Any]) -> MetricValues:
    """Build the metric's arrays. An example without a row is missing: it was not attempted."""
    places, count = row["places"], experiment.n_examples
    values, missing, weights = np.full(count, np.nan), np.ones(count, dtype=bool), np.broadcast_to(np.float64(1), count)
    values[places], missing[places] = row["means"], row["missing"] > 0
    shares, inapplicable = missing.astype(np.float64), np.zeros(count)
    shares[places], inapplicable[places] = row["missing"], row["inapplicable"]
    if (row["weights"] != 1).any():
        weights = weights.copy()
        weights[places] = row["weights"]
    return MetricValues(
        metric=row["metric"],
        evaluator=row["evaluator"],
        evaluator_version=row["evaluator_version"],
        is_yes_no=row["is_yes_no"],
        is_binary=experiment.repetitions == 1 and (row["is_yes_no"] or has_two_values(row["evaluator"], values)),
        values=values,
        missing=missing,
        scored=row["scored"],
        n_missing=row["n_missing"],
        weights=weights,
        are_0_or_1=row["are_0_or_1"],
        missing_share=None if experiment.repetitions == 1 else shares,
        inapplicable=inapplicable,
    )


def distinct(values: Values) -> Values:
    """Return the different values in order, as `np.unique` alone does, which imports masked arrays first."""
    return np.unique(values, return_counts=True)[0]


def has_two_values(evaluator: str, values: Values) -> bool:
    """Return whether an evaluator's known numbers are at most two different ones; never for built-in measures."""
    return evaluator != MEASURED and distinct(values[~np.isnan(values)]).size <= 2


def trials(
    store: Store, experiment: ExperimentRow, metric: MetricValues, *, pass_threshold: float, higher_is_better: bool
) -> Trials:
    """Return how many repetitions of each example passed, and how many were scored."""
    which = [experiment.experiment_id, metric.metric, metric.evaluator_version]
    sign = 1.0 if higher_is_better else -1.0
    order, counts = ask(store, (_ORDER, [experiment.snapshot_id]), (_PASSED, [*which, sign, sign * pass_threshold]))
    places = {example: index for index, (example,) in enumerate(order)}
    passed, scored = np.zeros(len(places)), np.zeros(len(places))
    for example, good, count in counts:
        passed[places[example]], scored[places[example]] = good, count
    return Trials(passed=passed, scored=scored)


_MEANS = f"""
select metric, evaluator_version, example_id,
       any_value(evaluator) as evaluator,
       avg(value) filter (status = 'scored') as mean,
       count(*) filter (status = 'scored') as scored,
       count(value) filter (status = 'scored') as numbers,
       count(*) filter (status in ('failed', 'not_attempted')) as n_missing,
       count(*) filter (status = 'not_applicable') as n_inapplicable,
       count(*) filter (status = 'sampled_out') as n_out,
       count(*) filter (status = 'scored' and value is null) as labelled,
       count(*) as runs,
       bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as yes_no,
       bool_and(value in (0, 1)) filter (status = 'scored') as are_0_or_1,
       min(sampling_rate) as rate
{_OF_METRIC} group by metric, evaluator_version, example_id
"""

_ONLY_RUN = f"""
select metric, evaluator_version, example_id, evaluator,
       case when status = 'scored' then value end as mean,
       (status = 'scored')::integer as scored,
       (status = 'scored' and value is not null)::integer as numbers,
       (status in ('failed', 'not_attempted'))::integer as n_missing,
       (status = 'not_applicable')::integer as n_inapplicable,
       (status = 'sampled_out')::integer as n_out,
       (status = 'scored' and value is null)::integer as labelled,
       1 as runs,
       coalesce(data_type, 'BOOLEAN') = 'BOOLEAN' as yes_no,
       case when status = 'scored' then value in (0, 1) end as are_0_or_1,
       sampling_rate as rate
{_OF_METRIC}
"""
"""The same for one repetition: an example then has one row of each metric, and grouping them takes most of the time."""


_LISTS = ("places", "means", "missing", "inapplicable", "weights")


def _by_metric(by_example: str) -> str:
    return f"""
with places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $1
), by_example as ({by_example})
select metric, evaluator_version, any_value(evaluator) as evaluator,
       count(mean) > 0 or sum(labelled) = 0 as is_number,
       bool_and(yes_no) as is_yes_no,
       coalesce(bool_and(are_0_or_1), false) as are_0_or_1,
       case when count(mean) > 0 then sum(numbers) else sum(scored) end::bigint as scored,
       sum(n_missing)::bigint as n_missing,
       list(place) as places,
       list(coalesce(mean, 'nan'::double)) as means,
       list(coalesce((n_missing + $3 - runs) / nullif($3 - n_inapplicable - n_out, 0), 0.0)) as missing,
       list(coalesce(n_inapplicable / nullif($3 - n_out, 0), 'nan'::double)) as inapplicable,
       list(1 / coalesce(rate, 1.0)) as weights
from by_example join places using (example_id)
group by metric, evaluator_version
order by metric, evaluator_version
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionValues:
    """One metric of one experiment. Arrays have shape (examples, repetitions), in the snapshot's order."""

    metric: str
    evaluator: str
    evaluator_version: str
    is_yes_no: bool
    values: Values  # NaN if there is none
    missing: npt.NDArray[np.bool_]  # failed, not attempted, or without a row
    weights: Values  # inverse sampling rates, shape (examples,)


def repetition_values(store: Store, experiment: ExperimentRow, metrics: Sequence[str]) -> list[RepetitionValues]:
    """Return metrics of an experiment, one entry per evaluator version; categorical metrics are omitted."""
    order, rows = ask(store, (_ORDER, [experiment.snapshot_id]), (_RUNS, [experiment.experiment_id, [*metrics]]))
    places = {example: index for index, (example,) in enumerate(order)}
    by_version = grouped(((metric, evaluator, version), tuple(run)) for metric, evaluator, version, *run in rows)
    metrics_values = [_repetition_values(experiment, names, runs, places) for names, runs in by_version.items()]
    return [metric for metric in metrics_values if not np.isnan(metric.values).all()]


def _repetition_values(
    experiment: ExperimentRow, names: tuple[str, str, str], runs: list[tuple[Any, ...]], places: dict[str, int]
) -> RepetitionValues:
    shape = (len(places), experiment.repetitions)
    values, missing, weights = np.full(shape, np.nan), np.ones(shape, dtype=bool), np.ones(len(places))
    yes_no = True
    for example, repetition, value, status, data_type, rate in runs:
        at = (places[example], repetition)
        missing[at] = status in ("failed", "not_attempted")
        if status == "scored" and value is not None:
            values[at] = value
        weights[at[0]] = 1 / rate if rate is not None else 1.0
        yes_no = yes_no and data_type in (None, "BOOLEAN")
    return RepetitionValues(
        metric=names[0],
        evaluator=names[1],
        evaluator_version=names[2],
        is_yes_no=yes_no,
        values=values,
        missing=missing,
        weights=weights,
    )
