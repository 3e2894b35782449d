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
    """The mean of one metric of a listed experiment, beside the run's baseline and the previous run."""

    metric: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    n_examples: int  # with a value
    previous: float | None  # the mean in the previous run of this name and target, by the same version of the evaluator
    history: Sequence[float | None]  # means of the newest runs of this name and target, up to this one
    baseline: str | None  # the run's baseline; None if there is no verdict
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    margin: float | None
    conclusion: str | None
    reason_code: str | None


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
    choices: Choices


def listed_experiments(
    store: Store, wanted: ListFilter, *, limit: int, offset: int = 0, sort: str = NEWEST_FIRST
) -> ExperimentList:
    """Return one page of the list, sorted by one of SORTS or by the `mean of ` a metric; what lacks it comes last.

    Raise InputError for another order.
    """
    named = sort.removeprefix("-")
    metric = named.removeprefix(MEAN) if named.startswith(MEAN) else None
    columns = SORTS | ({named: _MEAN} if metric else {})
    ordered = f"{_LIST} {order_by(sort, columns, 'e.started_at desc, experiment_id desc')} limit $7 offset $8"
    values = [wanted.text, wanted.dataset, list(wanted.tags), wanted.state, wanted.conclusion, wanted.since]
    with small_tables(store) as ask:
        rows = ask(ordered, [*values, limit, offset, *([metric] if metric else [])])
        (count,) = ask(f"select count(*) from ({_LIST})", values)[0]
        metrics, found = _metrics(ask, [identity for identity, *_ in rows]) if rows else {}, _choices(ask)
    counts = answer_counts(store, [identity for identity, *_ in rows])
    experiments = []
    for row in rows:
        *fields, decisions = row
        identity, (answered, failed) = row[0], counts[row[0]]
        of_gates = [ListedDecision(**decision) for decision in decisions or ()]
        counted = {"answered": answered, "failed": failed, "metrics": metrics.get(identity, [])}
        listed = record_of(ListedExperiment, fields, decisions=of_gates, **counted)
        more = spooled_if_unfinished(store, listed.state, identity, "outputs")
        experiments.append(replace(listed, answered=answered + more) if more else listed)
    return ExperimentList(experiments=experiments, count=count, choices=found)


def _metrics(ask: Ask, ids: Sequence[str]) -> dict[str, list[ListedMetric]]:
    return grouped(
        (identity, record_of(ListedMetric, row))
        for identity, *row in ask(_LISTED_METRICS, [list(ids), [*MEASURES], MOST_RUNS])
    )


def _choices(ask: Ask) -> Choices:
    return Choices(
        datasets=[name for (name,) in ask(DATASETS, [])],
        tags=[(tag, count) for tag, count in ask(_TAGS, [])],
        metrics=[metric for (metric,) in ask(_NAMES, [[*MEASURES]])],
    )


_LIST = """
with newest as (
    select candidate_experiment_id as experiment_id, gate, arg_max(decision_id, decided_at) as decision_id,
           arg_max(conclusion, decided_at) as conclusion
    from staging.decisions group by candidate_experiment_id, gate
), decided as (
    select experiment_id, list_distinct(list(conclusion)) as conclusions,
           list({decision_id: decision_id, gate: gate, conclusion: conclusion}
                order by conclusion = 'PASS', conclusion <> 'FAIL', gate) as decisions
    from newest group by experiment_id
)
select experiment_id, e.name, e.target, e.run_group, e.state, e.reason, e.tags, e.dataset_name,
       e.n_examples, e.n_examples * e.repetitions, e.calls, e.cost_usd, e.started_at,
       e.application_version, e.git_commit, d.decisions
from staging.experiments e left join decided d using (experiment_id)
where ($1::varchar is null
       or contains(lower(concat_ws(chr(10), e.name, e.target, e.description, experiment_id)), lower($1)))
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

_LISTED_METRICS = """
with lines as (
    select distinct name, target from staging.experiments where is_one_of(experiment_id, $1)
), points as (
    select e.experiment_id, e.run_group, t.*exclude (experiment_id, reason, reason_code),
           lag(t.mean) over run as previous,
           lag(t.evaluator_version) over run = t.evaluator_version as same_version,
           list(t.mean) over (run rows between $3 - 1 preceding and current row) as history
    from staging.experiments e semi join lines using (name, target) join staging.estimates t using (experiment_id)
    where t.slice is null
    window run as (partition by e.name, e.target, t.metric order by e.started_at, e.experiment_id)
)
select p.experiment_id, p.metric, p.mean, p.ci_low, p.ci_high, p.n_examples,
       case when p.same_version then p.previous end, p.history, b.target, v.difference, v.ci_low, v.ci_high,
       v.margin, v.conclusion, v.reason_code
from points p
left join current_verdicts v
    on v.candidate_experiment_id = p.experiment_id and v.metric = p.metric and v.slice = 'all' and v.is_shown
left join staging.experiments b on b.experiment_id = v.baseline_experiment_id
where is_one_of(p.experiment_id, $1)
order by coalesce(list_position($2, p.metric), 0), p.metric
"""
