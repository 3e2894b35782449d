"""Metrics of experiments over time.

The mart `metric_history` has the same means, but it counts the scores of all runs, whose files are opened for that: on
2,000 experiments that takes seconds, and `small_tables` milliseconds.
"""

from collections.abc import Sequence
from datetime import datetime

from evalflows.reports.experiments import DATASETS
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.store.small_tables import small_tables
from evalflows.store.sql import records_of
from evalflows.store.store import Store

MOST_LINES = 8
"""Lines in one chart, at most."""

MOST_NAMED = 10
"""Names in a message."""

_LINES = """
select name, target, arg_max(spec, started_at) ->> 'name', count(*) from source.experiments
where $1::varchar is null or dataset_name = $1
group by name, target order by count(*) desc, max(started_at) desc, name, target
"""

_OF_LINES = """
select distinct dataset_name from staging.experiments
where dataset_name is not null and list_contains($1, [name, target]) order by 1
"""

_ALL_METRICS = "select distinct metric from staging.estimates where slice is null order by metric"

_METRIC_LINES = """
select t.metric from staging.estimates t join staging.experiments e using (experiment_id)
where list_contains($1, [e.name, e.target]) and t.slice is null
group by t.metric order by coalesce(list_position($2, t.metric), 0), t.metric
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Experiments of one name and target."""

    name: str
    target: str
    spec: str | None  # the name of the spec of its newest run
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePoint:
    """One metric in one run of a line."""

    experiment_id: str
    run_group: str
    started_at: datetime
    state: str
    application_version: str | None
    git_commit: str | None
    git_branch: str | None
    git_dirty: bool | None
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    reason: str | None  # why there is no interval, or no mean
    scored: int  # examples with a value
    n_examples: int
    snapshot_id: str
    evaluator_version: str | None  # None: the run has no value of the metric
    previous_id: str | None  # of the last run before it, with a mean, on the same examples by the same evaluator
    previous_mean: float | None
    is_break: bool  # no run before it with a mean can be compared with it. Another target is what one compares
    evaluator_changed: bool  # since the run before
    target_changed: bool
    dataset_changed: bool
    cost_usd: float | None
    latency: float | None  # seconds, mean of the answers

    @property
    def changes(self) -> list[str]:
        """What changed since the run before."""
        changed = {"evaluator": self.evaluator_changed, "target": self.target_changed, "dataset": self.dataset_changed}
        return [name for name, has_changed in changed.items() if has_changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """One metric of one line over its newest runs, oldest first."""

    line: Line
    points: Sequence[LinePoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLines:
    """One metric of some lines, and what else there is to choose."""

    known: Sequence[Line]  # those with the most runs first
    lines: Sequence[MetricLine]  # empty: there is no experiment
    n_left_out: int  # lines that were asked for, and are too many
    metrics: Sequence[str]  # of the lines, built-in measures last
    metric: str | None  # None: they have none
    datasets: Sequence[str]  # of the lines' runs

    @property
    def specs(self) -> list[str]:
        """The names of specs that are not the name of a line."""
        names = {line.name for line in self.known}
        return list(dict.fromkeys(line.spec for line in self.known if line.spec and line.spec not in names))


def metric_lines(
    store: Store, names: Sequence[str], target: str | None, metric: str | None, newest: int, dataset: str | None = None
) -> MetricLines:
    """Return one metric over the newest runs of some lines; by default the first metric of the line with the most runs.

    With a `dataset`, its runs alone. A name is that of a line, or of a spec, which means all its lines. A target or a
    metric that only other lines have counts as none, since a form sends what was chosen before. Raise InputError for a
    name, a target, a metric or a dataset that no line has.
    """
    with small_tables(store) as ask:
        if dataset is not None:
            _check("dataset", dataset, [text for (text,) in ask(DATASETS, [])])
        known = records_of(Line, ask(_LINES, [dataset]))
        for name in names:
            _check("name", name, [*(line.name for line in known), *(line.spec for line in known if line.spec)])
        _check("target", target, [line.target for line in known])
        if metric is not None:
            _check("metric", metric, [text for (text,) in ask(_ALL_METRICS, [])])
        asked: Sequence[str | None] = names or [None]
        meant = list(dict.fromkeys(line for name in asked for line in _meant(known, name, target)))
        shown = meant[:MOST_LINES]
        both = [[line.name, line.target] for line in shown]
        metrics = [text for (text,) in ask(_METRIC_LINES, [both, [*MEASURES]])]
        datasets = [text for (text,) in ask(_OF_LINES, [both])]
        chosen = metric if metric in metrics else next(iter(metrics), None)
        lines = [
            MetricLine(
                line=line, points=records_of(LinePoint, ask(_POINTS, [line.name, line.target, chosen, newest, dataset]))
            )
            for line in shown
        ]
    n_left_out = len(meant) - len(shown)
    return MetricLines(
        known=known, lines=lines, n_left_out=n_left_out, metrics=metrics, metric=chosen, datasets=datasets
    )


def provider_changes(store: Store, experiments: Sequence[str]) -> set[str]:
    """Return those of a line's experiments, in order, whose target another model or system_fingerprint answered than
    the run before, though the same model was asked. Runs that paid for no call of it are passed over."""
    before: dict[str, frozenset[str]] = {}
    found = set()
    with store.reading(only={"experiment_id": experiments}):
        rows = store.query(_SERVED, [[*experiments]])
    for identity, model, served in sorted(rows, key=lambda row: experiments.index(row[0])):
        if model in before and before[model].isdisjoint(served):
            found.add(identity)
        before[model] = frozenset(served)
    return found


def _meant(known: Sequence[Line], name: str | None, target: str | None) -> list[Line]:
    """Return the line of a name, that with the target if it has one; else all lines of a spec of that name."""
    named = [line for line in known if name in (None, line.name)]
    if named:
        return [next((line for line in named if line.target == target), named[0])]
    return [line for line in known if line.spec == name]


def _check(what: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        some = list(dict.fromkeys(known))
        more = ", …" if len(some) > MOST_NAMED else ""
        raise InputError(f"{what}: got {given!r}, wanted one of {', '.join(some[:MOST_NAMED]) or 'none'}{more}")


_SERVED = """
select experiment_id, model, list(distinct concat_ws(' ', coalesce(answered_by, model), system_fingerprint))
from source.calls
where list_contains($1, experiment_id) and evaluator is null and kind = 'chat' and status = 'ok' group by all
"""

_POINTS = """
with measured as (
    select experiment_id, any_value(mean) as latency from staging.estimates
    where metric = 'latency' and slice is null group by experiment_id
), points as (
    select e.experiment_id, e.run_group, e.started_at, e.state, e.application_version, e.git_commit, e.git_branch,
           e.git_dirty,
           t.mean, t.ci_low, t.ci_high,
           coalesce(t.reason, case when t.experiment_id is null then
               case when e.state = 'running' then 'it is running' else 'no value' end end) as reason,
           coalesce(t.n_examples, 0) as scored, e.n_examples, e.snapshot_id, t.evaluator_version,
           lag(case when t.mean is not null then e.experiment_id end ignore nulls) over alike as previous_id,
           lag(t.mean ignore nulls) over alike as previous_mean,
           t.mean is not null and previous_id is null and lag(t.mean ignore nulls) over run is not null as is_break,
           coalesce(lag(t.evaluator_version ignore nulls) over run <> t.evaluator_version, false) as evaluator_changed,
           coalesce(lag(concat_ws(' ', e.target_version, e.application_version)) over run
                    <> concat_ws(' ', e.target_version, e.application_version), false) as target_changed,
           coalesce(lag(e.snapshot_id) over run <> e.snapshot_id, false) as dataset_changed,
           e.cost_usd, m.latency
    from staging.experiments e
    left join staging.estimates t on t.experiment_id = e.experiment_id and t.metric = $3 and t.slice is null
    left join measured m on m.experiment_id = e.experiment_id
    where e.name = $1 and e.target = $2 and ($5::varchar is null or e.dataset_name = $5)
    window run as (order by e.started_at, e.experiment_id),
           alike as (partition by t.evaluator_version, e.snapshot_id order by e.started_at, e.experiment_id)
)
from (from points order by started_at desc, experiment_id desc limit $4) order by started_at, experiment_id
"""
