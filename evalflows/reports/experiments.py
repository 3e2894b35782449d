"""The list of experiments, newest first, metrics over time, and the earlier run that an experiment can be held
against.

The mart `metric_history` says the same, but it counts the scores of all runs, whose files are opened for that: on 2,000
experiments that takes seconds, and `small_tables` milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from evalflows.analysis.figures import figure
from evalflows.reports.results import at, conclusion_text
from evalflows.specs import hints
from evalflows.specs.errors import MEASURES, InputError
from evalflows.store.queries.progress import answer_counts, spooled_if_running
from evalflows.store.records import Conclusion, ReasonCode
from evalflows.store.small_tables import Ask, small_tables
from evalflows.store.sql import record_of, records_of
from evalflows.store.store import Store

MOST_RUNS = 20
"""Runs of the same name and target that the history of a metric holds, at most."""


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
        return next((one for one in self.metrics if one.metric == name), None)

    @property
    def versioned(self) -> tuple[str, str | None, str | None]:
        return self.experiment_id, self.application_version, self.git_commit

    @property
    def main_metrics(self) -> list[ListedMetric]:
        """The metrics of evaluators."""
        return [one for one in self.metrics if one.metric not in MEASURES]


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


def listed_experiments(store: Store, wanted: ListFilter, *, limit: int, offset: int = 0) -> ExperimentList:
    """Return one page of the list."""
    values = [wanted.text, wanted.dataset, list(wanted.tags), wanted.state, wanted.conclusion, wanted.since]
    with small_tables(store) as ask:
        rows = ask(_LIST, [*values, limit, offset])
        (count,) = ask(f"select count(*) from ({_LIST})", [*values, None, 0])[0]
        metrics, found = _metrics(ask, [identity for identity, *_ in rows]), _choices(ask)
    counts = answer_counts(store, [identity for identity, *_ in rows])
    experiments = []
    for row in rows:
        *fields, decisions = row
        identity, (answered, failed) = row[0], counts[row[0]]
        of_gates = [ListedDecision(**decision) for decision in decisions or ()]
        counted = {"answered": answered, "failed": failed, "metrics": metrics.get(identity, [])}
        one = record_of(ListedExperiment, fields, decisions=of_gates, **counted)
        more = spooled_if_running(store, one.state, identity, "outputs")
        experiments.append(replace(one, answered=answered + more) if more else one)
    return ExperimentList(experiments=experiments, count=count, choices=found)


def _metrics(ask: Ask, ids: Sequence[str]) -> dict[str, list[ListedMetric]]:
    found: dict[str, list[ListedMetric]] = {}
    for identity, *row in ask(_LISTED_METRICS, [list(ids), [*MEASURES], MOST_RUNS]):
        found.setdefault(identity, []).append(record_of(ListedMetric, row))
    return found


def _choices(ask: Ask) -> Choices:
    return Choices(
        datasets=[name for (name,) in ask(_DATASETS, [])],
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
order by e.started_at desc, experiment_id desc limit $7 offset $8
"""

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
left join staging.verdicts v
    on v.run_group = p.run_group and v.candidate_experiment_id = p.experiment_id and v.metric = p.metric
       and v.slice is null and v.decision_id is null and v.comparison_id is null
left join staging.experiments b on b.experiment_id = v.baseline_experiment_id
where is_one_of(p.experiment_id, $1)
order by coalesce(list_position($2, p.metric), 0), p.metric
"""

_DATASETS = "select distinct dataset_name from staging.experiments where dataset_name is not null order by 1"

_TAGS = (
    "select tag, count(*) from (select unnest(tags) as tag from staging.experiments) group by tag order by 2 desc, 1"
)

_NAMES = """
select metric from staging.estimates where slice is null
group by metric order by coalesce(list_position($1, metric), 0), metric
"""


MOST_LINES = 8
"""Lines in one chart, at most."""

MOST_NAMED = 10
"""Names in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Experiments of one name and target."""

    name: str
    target: str
    spec: str | None  # the name of the spec of its newest run
    runs: int
    last_started_at: datetime


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
    previous_mean: float | None
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

    @property
    def is_break(self) -> bool:
        """Whether values from here on are not comparable with earlier ones. Another target is what one compares."""
        return self.evaluator_changed or self.dataset_changed


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

    @property
    def specs(self) -> list[str]:
        """The names of specs that are not the name of a line."""
        names = {one.name for one in self.known}
        return list(dict.fromkeys(one.spec for one in self.known if one.spec and one.spec not in names))


def metric_lines(
    store: Store, names: Sequence[str], target: str | None, metric: str | None, newest: int
) -> MetricLines:
    """Return one metric over the newest runs of some lines; by default the first metric of the line with the most runs.

    A name is that of a line, or of a spec, which means all its lines. A target or a metric that only other lines have
    counts as none, since a form sends what was chosen before. Raise InputError for a name, a target or a metric that no
    line has.
    """
    with small_tables(store) as ask:
        known = records_of(Line, ask(_LINES, []))
        for name in names:
            _check("name", name, [*(one.name for one in known), *(one.spec for one in known if one.spec)])
        _check("target", target, [one.target for one in known])
        if metric is not None:
            _check("metric", metric, [one for (one,) in ask(_ALL_METRICS, [])])
        asked: Sequence[str | None] = names or [None]
        meant = list(dict.fromkeys(one for name in asked for one in _meant(known, name, target)))
        shown = meant[:MOST_LINES]
        metrics = [one for (one,) in ask(_METRIC_LINES, [[[one.name, one.target] for one in shown], [*MEASURES]])]
        chosen = metric if metric in metrics else next(iter(metrics), None)
        lines = [
            MetricLine(
                line=one,
                points=records_of(LinePoint, ask(_POINTS, [one.name, one.target, chosen, newest])),
            )
            for one in shown
        ]
    n_left_out = len(meant) - len(shown)
    return MetricLines(known=known, lines=lines, n_left_out=n_left_out, metrics=metrics, metric=chosen)


def _meant(known: Sequence[Line], name: str | None, target: str | None) -> list[Line]:
    """Return the line of a name, that with the target if it has one; else all lines of a spec of that name."""
    named = [one for one in known if name in (None, one.name)]
    if named:
        return [next((one for one in named if one.target == target), named[0])]
    return [one for one in known if one.spec == name]


def _check(what: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        some = list(dict.fromkeys(known))
        more = ", …" if len(some) > MOST_NAMED else ""
        raise InputError(f"{what}: got {given!r}, wanted one of {', '.join(some[:MOST_NAMED]) or 'none'}{more}")


_LINES = """
select name, target, arg_max(spec ->> 'name', started_at), count(*), max(started_at) from staging.experiments
group by name, target order by count(*) desc, max(started_at) desc, name, target
"""

_ALL_METRICS = "select distinct metric from staging.estimates where slice is null order by metric"

_METRIC_LINES = """
select t.metric from staging.estimates t join staging.experiments e using (experiment_id)
where list_contains($1, [e.name, e.target]) and t.slice is null
group by t.metric order by coalesce(list_position($2, t.metric), 0), t.metric
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


MOST_METRICS = 3
"""Metrics that the sentence names: those that differ, then the others."""

_ORDER = ("worse", "better", "no_worse", "equivalent", "not_enough_evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSince:
    """One metric in the previous run and now, over the examples that both scored."""

    metric: str
    previous_mean: float | None
    mean: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    p_adjusted: float | None
    margin: float | None
    conclusion: Conclusion
    reason_code: ReasonCode | None

    @property
    def text(self) -> str:
        """`contains 0.81 → 0.84, no significant difference`."""
        means = " → ".join(figure(mean, self.metric) for mean in (self.previous_mean, self.mean))
        return f"{self.metric} {means}, {conclusion_text(self.conclusion, self.reason_code, self.margin)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousRun:
    """An earlier run of an experiment's name, and each metric of evaluators since."""

    experiment_id: str
    previous_experiment_id: str
    previous_name: str
    previous_started_at: datetime
    n_examples: int
    n_shared: int  # examples with the same inputs and references in both
    metrics: Sequence[MetricSince]

    @property
    def sentence(self) -> str:
        """Which run it is, and how the metrics did since."""
        named = sorted(self.metrics, key=lambda one: _ORDER.index(one.conclusion))
        more = len(named) - MOST_METRICS
        shown = [*(one.text for one in named[:MOST_METRICS]), *([f"{more} more"] if more > 0 else [])]
        said = "; ".join(shown) or "no metric of an evaluator is shared"
        is_all = self.n_shared == self.n_examples
        on = "" if is_all else f", on the {self.n_shared} of {self.n_examples} examples that are in both"
        return f"against the previous run {self.previous_name} ({at(self.previous_started_at)}){on}: {said}"

    @property
    def rank(self) -> int:
        """Its place among several runs: those with something worse come first, then those with something better."""
        return min((_ORDER.index(one.conclusion) for one in self.metrics), default=len(_ORDER))

    @property
    def command(self) -> str:
        """The command that shows everything of the difference."""
        return hints.diff(self.previous_experiment_id, self.experiment_id).command

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence, "command": self.command}


def previous_runs(store: Store, earlier: Iterable[tuple[str, str]]) -> list[PreviousRun]:
    """Return how each experiment did against the earlier run beside it, if they share examples; both are ids.

    Verdicts on built-in measures are left out.
    """
    from evalflows.analysis.diff import verdicts_since  # late: specs are slow to import

    return [
        PreviousRun(
            experiment_id=row.experiment_id,
            previous_experiment_id=previous.experiment_id,
            previous_name=previous.name,
            previous_started_at=previous.started_at,
            n_examples=row.n_examples,
            n_shared=n_shared,
            metrics=[
                MetricSince(
                    previous_mean=one.baseline_mean,
                    mean=one.candidate_mean,
                    **{name: getattr(one, name) for name in _OF_VERDICT},
                )
                for one in verdicts
                if one.metric not in MEASURES
            ],
        )
        for row, previous, n_shared, verdicts in verdicts_since(store, earlier)
    ]


_OF_VERDICT = ("metric", "difference", "ci_low", "ci_high", "p_adjusted", "margin", "conclusion", "reason_code")
