"""The judgements of the same subjects by two judges, side by side, with what each was paid and what people said."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from evalflows.store.records import Conclusion
from evalflows.store.sql import ask_records
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

JUDGED_AGAIN = "judged_again"
"""The field of the metadata with what was judged before: ids of experiments, of a comparison, or a window."""

Kind = Literal["run", "pair", "item"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Where judgements are: an experiment, a comparison, or a trace evaluation in a window."""

    owner: str  # its id, or the name of a trace evaluation
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoJudgements:
    """One metric of one subject by both judges; what a judge did not give is None."""

    metric: str
    unit: str  # the judged run, pair of runs or item, as of before
    unit_after: str
    experiment_id: str | None  # whose answer it is, like `target`; None of pairs and items
    target: str | None
    example_id: str
    repetition: int
    together: str  # units sampled together share it
    left_experiment_id: str | None  # of a pair
    value: float | None
    label: str | None
    comment: str | None
    value_after: float | None
    label_after: str | None
    comment_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricJudge:
    """Who judged a metric, and what of it was paid."""

    metric: str
    evaluator: str
    evaluator_version: str
    judge_model: str | None
    n_judged: int
    n_failed: int
    n_priced: int  # judgements of which every call was made for it, and has a price
    priced_usd: float | None  # what these cost
    calls: int | None
    calls_cached: int | None
    cost_usd: float | None
    tokens_in: float | None  # of a judgement, on average
    tokens_out: float | None
    error: str | None  # the first of those that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOfUnit:
    """What a person said of a judged unit."""

    metric: str
    unit: str
    value: float | None
    label: str | None
    labeller: str | None
    is_fair: bool
    chance: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverallRate:
    """The win rate of a candidate over all examples of a comparison."""

    metric: str
    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    conclusion: Conclusion
    reason_code: str | None
    win_rate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What was judged: JSON."""

    unit: str
    inputs: str | None
    outputs: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgain:
    """What was judged again."""

    reference: str  # an experiment, a comparison, or the name of a trace evaluation
    name: str
    subjects: Literal["answers", "pairs", "items"]
    started_at: datetime


def listed_again(store: Store) -> list[ListedAgain]:
    """Return all that was judged again, the last first."""
    return ask_records(store, ListedAgain, _LISTED)


def newest_again(store: Store, identity: str) -> str | None:
    """Return the experiment or comparison in which one was judged again last: itself if it is one; None if none is."""
    found = store.query(_NEWEST, [identity])
    return str(found[0][0]) if found else None


def two_judgements(store: Store, kind: Kind, before: Judged, after: Judged) -> list[TwoJudgements]:
    """Return the judgements of what both scored, in the order of the examples."""
    return ask_records(store, TwoJudgements, _TWO[kind], [*_values(kind, before), *_values(kind, after)])


def metric_judges(store: Store, kind: Kind, owners: Sequence[Judged]) -> list[MetricJudge]:
    """Return who judged each metric of some owners, those of one judge together."""
    values = [[owner.owner if kind != "item" else evaluation_id(owner.owner) for owner in owners]]
    bounds = [owners[0].since, owners[0].until]
    return ask_records(store, MetricJudge, _JUDGES[kind], [*values, *bounds])


def labels_of_units(store: Store) -> list[LabelOfUnit]:
    """Return all that people said of whole runs, pairs and items."""
    return ask_records(store, LabelOfUnit, _LABELS)


def win_rates_of(store: Store, comparison: str) -> list[OverallRate]:
    """Return the win rates of a comparison over all examples, by metric."""
    return ask_records(store, OverallRate, _RATES, [comparison])


def texts_of_runs(store: Store, experiments: Sequence[str], runs: Sequence[str]) -> list[Texts]:
    """Return the inputs and outputs of some runs of experiments."""
    return ask_records(store, Texts, _TEXTS, [list(experiments), list(runs)])


def _values(kind: Kind, judged: Judged) -> list[object]:
    if kind == "item":
        return [evaluation_id(judged.owner), judged.since, judged.until]
    return [judged.owner]


_RUNS = """
    select run_id as unit, example_id, repetition, metric, value, label, comment, '' as turn
    from scores where experiment_id = ${} and subject_kind = 'run' and turn is null and status = 'scored'"""

_PAIRS = """
    select left_run_id || ' ' || right_run_id as unit, example_id, repetition, metric, left_points as value,
           case when left_points > 0.5 then 'left' when left_points < 0.5 then 'right' else 'tie' end as label, comment,
           left_experiment_id, coalesce('cluster ' || cluster, 'example ' || example_id) as together
    from pair_outcomes
    where comparison_id = ${} and status = 'scored' and left_points is not null
      and decided_by is distinct from 'failed_output'"""

_ITEMS = """
    select subject_id as unit, coalesce(turn::varchar, '') as turn, metric, value, label, comment
    from scores
    where left(experiment_id, -11) = ${} and subject_kind in ('trace', 'observation', 'session') and status = 'scored'
      and subject_at >= ${} and subject_at <= ${}
    qualify row_number() over (partition by subject_id, turn, metric order by recorded_at desc, score_id) = 1"""

_TWO: dict[Kind, str] = {
    "run": f"""
with before as ({_RUNS.format(1)}), after as ({_RUNS.format(2)}), known as (
    select e.experiment_id, e.target, x.example_id, x.cluster, x.position
    from examples x join experiments e using (snapshot_id) where e.experiment_id = $1)
select b.metric, b.unit, a.unit, k.experiment_id, k.target, b.example_id, b.repetition,
       coalesce('cluster ' || k.cluster, 'example ' || b.example_id), null, b.value, b.label, b.comment,
       a.value, a.label, a.comment
from before b join after a using (metric, example_id, repetition) left join known k on k.example_id = b.example_id
order by b.metric, k.position, b.repetition""",
    "pair": f"""
with before as ({_PAIRS.format(1)}), after as ({_PAIRS.format(2)})
select b.metric, b.unit, a.unit, null, null, b.example_id, b.repetition, b.together, b.left_experiment_id,
       b.value, b.label, b.comment, a.value, a.label, a.comment
from before b join after a using (metric, unit) order by b.metric, b.example_id, b.repetition, b.unit""",
    "item": f"""
with before as ({_ITEMS.format(1, 2, 3)}), after as ({_ITEMS.format(4, 5, 6)})
select b.metric, b.unit, a.unit, null, null, b.unit || case b.turn when '' then '' else ' turn ' || b.turn end, 0,
       coalesce('session ' || t.session_id, b.unit), null, b.value, b.label, b.comment, a.value, a.label, a.comment
from before b join after a using (metric, unit, turn)
left join traces t on t.trace_id = split_part(b.unit, '/', 1)
order by b.metric, b.unit, b.turn""",
}

_WHO = """
select metric, any_value(evaluator), arg_max(evaluator_version, recorded_at), any_value(judge_model),
       count(*) filter (status = 'scored'), count(*) filter (status = 'failed'),
       count(*) filter (calls > 0 and coalesce(calls_cached, 0) = 0 and cost_usd is not null),
       sum(cost_usd) filter (calls > 0 and coalesce(calls_cached, 0) = 0),
       sum(calls)::bigint, sum(calls_cached)::bigint, sum(cost_usd), avg(tokens_in), avg(tokens_out),
       arg_min(error, recorded_at) filter (status = 'failed')
from {} where {}
group by metric order by metric
"""

_ANY_TIME = "$2::timestamptz is null and $3::timestamptz is null"  # the bounds are those of items alone

_JUDGES: dict[Kind, str] = {
    "run": _WHO.format("scores", f"is_one_of(experiment_id, $1) and subject_kind = 'run' and {_ANY_TIME}"),
    "pair": _WHO.format(
        "comparisons", f"is_one_of(comparison_id, $1) and decided_by is distinct from 'failed_output' and {_ANY_TIME}"
    ),
    "item": _WHO.format("scores", "is_one_of(left(experiment_id, -11), $1) and subject_at >= $2 and subject_at <= $3"),
}

_LABELS = """
select metric, subject_id || coalesce(' ' || other_run_id, ''), value, label, labeller, is_fair, chance, source
from current_labels where turn is null order by metric, subject_id, labeller
"""

_SOURCES = f"""
    select experiment_id as id, run_group as owner, spec ->> 'name' as name, 'answers' as subjects, started_at,
           metadata ->> '{JUDGED_AGAIN}' as again from source.experiments
    union all
    select comparison_id, comparison_id, name, 'pairs', started_at, metadata ->> '{JUDGED_AGAIN}'
    from source.comparison_sets"""

_NEWEST = f"""
select id from ({_SOURCES}) where again is not null and (id = $1 or contains(again, $1))
order by id <> $1, started_at desc, id limit 1
"""

_LISTED = f"""
select any_value(id), any_value(name), any_value(subjects), min(started_at) as began from ({_SOURCES})
where again is not null group by owner
union all
select name, name, 'items', min(started_at) from source.watermarks
where (spec -> '$.metadata.{JUDGED_AGAIN}') is not null group by name
order by began desc
"""

_RATES = """
select metric, candidate_experiment_id, candidate, baseline_experiment_id, baseline, conclusion, reason_code,
       win_rate, win_rate_low, win_rate_high
from win_rates where comparison_id = $1 and slice = 'all' and not length_controlled order by all
"""

_TEXTS = """
select o.run_id, x.inputs, o.outputs
from outputs o join experiments e using (experiment_id)
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where is_one_of(o.experiment_id, $1) and is_one_of(o.run_id, $2)
"""
