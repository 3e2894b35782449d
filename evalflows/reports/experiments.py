"""The list of experiments."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.progress import answer_counts, spooled_if_unfinished
from evalflows.store.small_tables import Ask, small_tables
from evalflows.store.sql import order_by, record_of
from evalflows.store.store import Store

MOST_RUNS = 20
"""Runs of the same name and target that the history of a metric holds, at most."""

MEAN = "mean of "
"""Before a metric, what the list is sorted by."""

NEWEST_FIRST = "-started"

SORTS = {
    "started": "e.started_at",
    "name": "lower(e.name)",
    "state": "e.state",
    "gate": "list_min(d.conclusions)",
    "cost": "e.cost_usd",
    "dataset": "lower(e.dataset_name)",
}
"""What the list is sorted by beside means; with a minus before it, downwards. Gates: FAIL first."""

DATASETS = "select distinct dataset_name from staging.experiments where dataset_name is not null order by 1"

_TAGS = (
    "select tag, count(*) from (select unnest(tags) as tag from staging.experiments) group by tag order by 2 desc, 1"
)

_NAMES = """
select metric from staging.estimates where slice is null
group by metric order by coalesce(list_position($1, metric), 0), metric
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which experiments are wanted. None or empty: all."""

    text: str | None = None  # in the name, the target, the description or the id
    dataset: str | None = None
    tags: Sequence[str] = ()  # all of them
    state: str | None = None
    conclusion: str | None = None  # PASS: all its gates say so; otherwise one of them does
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMetric:
    """The mean of one metric of a listed experiment, beside the run's baseline."""

    metric: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    n_examples: int  # with a value
    baseline: str | None  # the run's baseline; None if there is no verdict
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    margin: float | None
    conclusion: str | None
    reason_code: str | None


class Trend(NamedTuple):
    """One metric of a listed experiment in the runs of its name and target."""

    previous: float | None  # the mean in the run before, if it was by the same version of the evaluator
    history: Sequence[float | None]  # means of the newest runs, up to this one


class ListedDecision(NamedTuple):
    """The newest decision of one gate on a listed experiment."""

    decision_id: str
    gate: str
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """One experiment of the list."""

    experiment_id: str
    name: str
    target: str
    run_group: str
    state: str
    reason: str | None
    tags: Sequence[str]
    dataset_name: str | None
    n_examples: int
    planned: int  # runs
    calls: int | None
    cost_usd: float | None
    started_at: datetime
    application_version: str | None
    git_commit: str | None
    decisions: Sequence[ListedDecision]  # one of each gate: FAIL first, PASS last
    answered: int
    failed: int
    metrics: Sequence[ListedMetric]  # by name, built-in measures last

    def metric(self, name: str) -> ListedMetric | None:
        return next((metric for metric in self.metrics if metric.metric == name), None)

    @property
    def versioned(self) -> tuple[str, str | None, str | None]:
        return self.experiment_id, self.application_version, self.git_commit

    @property
    def main_metrics(self) -> list[ListedMetric]:
        """The metrics of evaluators."""
        return [metric for metric in self.metrics if metric.metric not in MEASURES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the experiments of a store can be filtered by."""

    datasets: Sequence[str]
    tags: Sequence[tuple[str, int]]  # with the number of experiments, most frequent first
    metrics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentList:
    """One page of the list."""

    experiments: Sequence[ListedExperiment]
    count: int  # of all pages


def listed_experiments(
    store: Store, wanted: ListFilter, *, limit: int, offset: int = 0, sort: str = NEWEST_FIRST
) -> ExperimentList:
    """Return one page of the list, sorted by one of SORTS or by the `mean of ` a metric; what lacks it comes last.

    Raise InputError for another order.
    """
    named = sort.removeprefix("-")
    metric = named.removeprefix(MEAN) if named.startswith(MEAN) else None
    columns = SORTS | ({named: _MEAN} if metric else {})
    found = _FOUND.replace("{order}", order_by(sort, columns, "e.started_at desc, e.experiment_id desc"))
    values = [wanted.text, wanted.dataset, list(wanted.tags), wanted.state, wanted.conclusion, wanted.since]
    with small_tables(store) as ask:
        ((count, ids),) = ask(found, [*values, limit, offset, *([metric] if metric else [])])
        rows = ask(_LISTED, [ids]) if ids else []
        metrics = _metrics(ask, ids) if ids else {}
    counts = answer_counts(store, ids or [])
    experiments = []
    for row in rows:
        *fields, decisions = row
        identity, (answered, failed) = row[0], counts[row[0]]
        of_gates = [ListedDecision(**decision) for decision in decisions or ()]
        counted = {"answered": answered, "failed": failed, "metrics": metrics.get(identity, [])}
        listed = record_of(ListedExperiment, fields, decisions=of_gates, **counted)
        more = spooled_if_unfinished(store, listed.state, identity, "outputs")
        experiments.append(replace(listed, answered=answered + more) if more else listed)
    return ExperimentList(experiments=experiments, count=count)


def _metrics(ask: Ask, ids: Sequence[str]) -> dict[str, list[ListedMetric]]:
    return grouped(
        (identity, record_of(ListedMetric, row)) for identity, *row in ask(_LISTED_METRICS, [ids, [*MEASURES]])
    )


def trends(store: Store, experiments: Sequence[str], metric: str) -> dict[str, Trend]:
    """Return how a metric of experiments went, by id, of those that have it."""
    with small_tables(store) as ask:
        return {identity: Trend(*row) for identity, *row in ask(_TRENDS, [list(experiments), metric, MOST_RUNS])}


def choices(store: Store) -> Choices:
    """Return what the experiments can be filtered by."""
    with small_tables(store) as ask:
        return Choices(
            datasets=[name for (name,) in ask(DATASETS, [])],
            tags=[(tag, count) for tag, count in ask(_TAGS, [])],
            metrics=[metric for (metric,) in ask(_NAMES, [[*MEASURES]])],
        )


_FOUND = """
with newest as (
    select candidate_experiment_id as experiment_id, arg_max(conclusion, decided_at) as conclusion
    from staging.decisions group by candidate_experiment_id, gate
), decided as (
    select experiment_id, list(distinct conclusion) as conclusions from newest group by experiment_id
)
select count(*), list(e.experiment_id {order})[$8 + 1 : $8 + $7]
from staging.experiments e left join decided d using (experiment_id)
where ($1::varchar is null
       or contains(lower(concat_ws(chr(10), e.name, e.target, e.description, e.experiment_id)), lower($1)))
  and ($2::varchar is null or e.dataset_name = $2) and list_has_all(e.tags, $3::varchar[])
  and ($4::varchar is null or e.state = $4)
  and ($5::varchar is null
       or case when $5 = 'PASS' then d.conclusions = ['PASS'] else list_contains(d.conclusions, $5) end)
  and ($6::timestamptz is null or e.started_at >= $6)
"""

_MEAN = """(
    select any_value(t.mean) from staging.estimates t
    where t.experiment_id = e.experiment_id and t.metric = $9 and t.slice is null
)"""

_LISTED = """
with newest as (
    select candidate_experiment_id as experiment_id, gate, arg_max(decision_id, decided_at) as decision_id,
           arg_max(conclusion, decided_at) as conclusion
    from staging.decisions where is_one_of(candidate_experiment_id, $1) group by candidate_experiment_id, gate
), decided as (
    select experiment_id, list({decision_id: decision_id, gate: gate, conclusion: conclusion}
                               order by conclusion = 'PASS', conclusion <> 'FAIL', gate) as decisions
    from newest group by experiment_id
)
select e.experiment_id, e.name, e.target, e.run_group, e.state, e.reason, e.tags, e.dataset_name,
       e.n_examples, e.n_examples * e.repetitions, e.calls, e.cost_usd, e.started_at,
       e.application_version, e.git_commit, d.decisions
from staging.experiments e left join decided d using (experiment_id)
where is_one_of(e.experiment_id, $1) order by list_position($1, e.experiment_id)
"""

_LISTED_METRICS = """
select t.experiment_id, t.metric, t.mean, t.ci_low, t.ci_high, t.n_examples, b.target, v.difference, v.ci_low,
       v.ci_high, v.margin, v.conclusion, v.reason_code
from staging.estimates t
left join current_verdicts v
    on v.candidate_experiment_id = t.experiment_id and v.metric = t.metric and v.slice = 'all' and v.is_shown
left join staging.experiments b on b.experiment_id = v.baseline_experiment_id
where is_one_of(t.experiment_id, $1) and t.slice is null
order by coalesce(list_position($2, t.metric), 0), t.metric
"""

_TRENDS = """
with lines as (
    select distinct name, target from staging.experiments where is_one_of(experiment_id, $1)
), points as (
    select e.experiment_id,
           case when lag(t.evaluator_version) over run = t.evaluator_version then lag(t.mean) over run end as previous,
           list(t.mean) over (run rows between $3 - 1 preceding and current row) as history
    from staging.experiments e semi join lines using (name, target) join staging.estimates t using (experiment_id)
    where t.slice is null and t.metric = $2
    window run as (partition by e.name, e.target order by e.started_at, e.experiment_id)
)
from points where is_one_of(experiment_id, $1)
"""
