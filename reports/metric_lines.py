"""Metrics over time: the runs of one name and target, with their means and what changed between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES
from evalflows.store.parquet import Store
from evalflows.store.small_tables import small_tables

MOST_NAMED = 10
"""Names in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Experiments of one name and target."""

    name: str
    target: str
    runs: int
    last_started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePoint:
    """One metric in one run of a line."""

    experiment_id: str
    started_at: datetime
    state: str
    git_commit: str | None
    git_branch: str | None
    git_dirty: bool | None
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    reason: str | None  # why there is no interval, or no mean
    scored: int  # examples with a value
    n_examples: int
    previous_mean: float | None
    evaluator_changed: bool  # since the run before
    target_changed: bool
    dataset_changed: bool
    cost_usd: float | None
    latency: float | None  # seconds, mean of the answers

    @property
    def changes(self) -> list[str]:
        """What changed since the run before: values from here on are not comparable with earlier ones."""
        changed = {"evaluator": self.evaluator_changed, "target": self.target_changed, "dataset": self.dataset_changed}
        return [name for name, has_changed in changed.items() if has_changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """One metric of one line over its runs, oldest first, and what else there is to choose."""

    known: Sequence[Line]  # those with the most runs first
    line: Line | None  # None: there is no experiment
    metrics: Sequence[str]  # of the line, built-in measures last
    metric: str | None  # None: the line has none
    points: Sequence[LinePoint]


def metric_line(store: Store, name: str | None, target: str | None, metric: str | None, newest: int) -> MetricLine:
    """Return one metric over the newest runs of a line; by default the line with the most runs, and its first metric.

    A target or a metric that only other lines have counts as none, since a form sends what was chosen before. Raise
    InputError for a name, a target or a metric that no line has.
    """
    with small_tables(store) as ask:
        known = [Line(**dict(zip(Line.__slots__, row, strict=True))) for row in ask(_LINES, [])]
        _check("name", name, [one.name for one in known])
        _check("target", target, [one.target for one in known])
        if metric is not None:
            _check("metric", metric, [one for (one,) in ask(_ALL_METRICS, [])])
        named = [one for one in known if name in (None, one.name)]
        line = next((one for one in named if one.target == target), None) or next(iter(named), None)
        of_line = [line.name, line.target] if line else [None, None]
        metrics = [one for (one,) in ask(_METRICS, [*of_line, [*MEASURES]])]
        shown = metric if metric in metrics else next(iter(metrics), None)
        rows = ask(_POINTS, [*of_line, shown, newest]) if shown else []
    points = [LinePoint(**dict(zip(LinePoint.__slots__, row, strict=True))) for row in rows]
    return MetricLine(known=known, line=line, metrics=metrics, metric=shown, points=points)


def _check(what: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        some = list(dict.fromkeys(known))
        more = ", …" if len(some) > MOST_NAMED else ""
        raise InputError(f"{what}: got {given!r}, wanted one of {', '.join(some[:MOST_NAMED]) or 'none'}{more}")


_LINES = """
select name, target, count(*), max(started_at) from staging.experiments
group by name, target order by count(*) desc, max(started_at) desc, name, target
"""

_ALL_METRICS = "select distinct metric from staging.estimates where slice is null order by metric"

_METRICS = """
select t.metric from staging.estimates t join staging.experiments e using (experiment_id)
where e.name = $1 and e.target = $2 and t.slice is null
group by t.metric order by coalesce(list_position($3, t.metric), 0), t.metric
"""

_POINTS = """
with measured as (
    select experiment_id, any_value(mean) as latency from staging.estimates
    where metric = 'latency' and slice is null group by experiment_id
), points as (
    select e.experiment_id, e.started_at, e.state, e.git_commit, e.git_branch, e.git_dirty, t.mean, t.ci_low, t.ci_high,
           coalesce(t.reason, case when t.experiment_id is null then
               case when e.state = 'running' then 'it is running' else 'no value' end end) as reason,
           coalesce(t.n_examples, 0) as scored, e.n_examples, lag(t.mean) over run as previous_mean,
           coalesce(lag(t.evaluator_version) over run <> t.evaluator_version, false) as evaluator_changed,
           coalesce(lag(concat_ws(' ', e.target_version, e.application_version)) over run
                    <> concat_ws(' ', e.target_version, e.application_version), false) as target_changed,
           coalesce(lag(e.snapshot_id) over run <> e.snapshot_id, false) as dataset_changed,
           e.cost_usd, m.latency
    from staging.experiments e
    left join staging.estimates t on t.experiment_id = e.experiment_id and t.metric = $3 and t.slice is null
    left join measured m on m.experiment_id = e.experiment_id
    where e.name = $1 and e.target = $2
    window run as (order by e.started_at, e.experiment_id)
)
from (from points order by started_at desc, experiment_id desc limit $4) order by started_at, experiment_id
"""
