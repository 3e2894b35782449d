"""The judgements of the same subjects by two judges, side by side, with what each was paid and what people said."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from evalflows.specs.frozen import dataclass
from evalflows.store.sql import ask_arrow, ask_records, records_of
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

JUDGED_AGAIN = "judged_again"
"""The field of the metadata with what was judged before: ids of experiments, of a comparison, or a window."""

Subjects = Literal["answers", "pairs", "items"]


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
    usd_each: float | None  # the mean cost of judgements of which every call was made for it, and has a price
    calls: int | None
    calls_cached: int | None
    tokens_in: float | None  # of a judgement, on average
    tokens_out: float | None
    error: str | None  # the first of those that failed


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
    subjects: Subjects
    started_at: datetime


def listed_again(store: Store) -> list[ListedAgain]:
    """Return all that was judged again, the last first."""
    return ask_records(store, ListedAgain, _LISTED)


def newest_again(store: Store, identity: str) -> ListedAgain | None:
    """Return what judged an experiment, a comparison or a trace evaluation again last: itself if it did; or
    None."""
    found = records_of(ListedAgain, store.query(_NEWEST, [identity]))
    return found[0] if found else None


def is_again(store: Store, identity: str) -> bool:
    """Return whether an experiment or a comparison judged something again."""
    newest = newest_again(store, identity)
    return newest is not None and newest.reference == identity


def two_judgements(
    store: Store, subjects: Subjects, before: str, after: str, window: Sequence[datetime]
) -> list[TwoJudgements]:
    """Return the judgements of what both scored, in the order of the examples.

    `before` and `after` are ids of experiments or comparisons, or of trace evaluations, which have a `window`.
    """
    return ask_records(store, TwoJudgements, _TWO[subjects], [before, after, *window])


def metric_judges(
    store: Store, subjects: Subjects, owners: Sequence[str], window: Sequence[datetime]
) -> list[MetricJudge]:
    """Return who judged each metric of some owners, those of one judge together."""
    return ask_records(store, MetricJudge, _JUDGES[subjects], [list(owners), *window])


def labels_of_units(store: Store) -> "pd.DataFrame":
    """Return all that people said of whole runs, pairs and items, with the columns that `join_labels` wants."""
    labels: pd.DataFrame = ask_arrow(store, _LABELS, []).to_pandas()
    return labels


def texts_of_runs(store: Store, experiments: Sequence[str], runs: Sequence[str]) -> list[Texts]:
    """Return the inputs and outputs of some runs of experiments."""
    return ask_records(store, Texts, _TEXTS, [list(experiments), list(runs)])


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
      and subject_at >= $3 and subject_at <= $4
    qualify row_number() over (partition by subject_id, turn, metric order by recorded_at desc, score_id) = 1"""

_TWO: dict[Subjects, str] = {
    "answers": f"""
with before as ({_RUNS.format(1)}), after as ({_RUNS.format(2)}), known as (
    select e.experiment_id, e.target, x.example_id, x.cluster, x.position
    from examples x join experiments e using (snapshot_id) where e.experiment_id = $1)
select b.metric, b.unit, a.unit, k.experiment_id, k.target, b.example_id, b.repetition,
       coalesce('cluster ' || k.cluster, 'example ' || b.example_id), null, b.value, b.label, b.comment,
       a.value, a.label, a.comment
from before b join after a using (metric, example_id, repetition) left join known k on k.example_id = b.example_id
order by b.metric, k.position, b.repetition""",
    "pairs": f"""
with before as ({_PAIRS.format(1)}), after as ({_PAIRS.format(2)})
select b.metric, b.unit, a.unit, null, null, b.example_id, b.repetition, b.together, b.left_experiment_id,
       b.value, b.label, b.comment, a.value, a.label, a.comment
from before b join after a using (metric, unit) order by b.metric, b.example_id, b.repetition, b.unit""",
    "items": f"""
with before as ({_ITEMS.format(1)}), after as ({_ITEMS.format(2)})
select b.metric, b.unit, a.unit, null, null, b.unit || case b.turn when '' then '' else ' turn ' || b.turn end, 0,
       coalesce('session ' || t.session_id, b.unit), null, b.value, b.label, b.comment, a.value, a.label, a.comment
from before b join after a using (metric, unit, turn)
left join traces t on t.trace_id = split_part(b.unit, '/', 1)
order by b.metric, b.unit, b.turn""",
}

_WHO = """
select metric, any_value(evaluator), arg_max(evaluator_version, recorded_at), any_value(judge_model),
       count(*) filter (status = 'scored'), count(*) filter (status = 'failed'),
       avg(cost_usd) filter (calls > 0 and coalesce(calls_cached, 0) = 0),
       sum(calls)::bigint, sum(calls_cached)::bigint, avg(tokens_in), avg(tokens_out),
       arg_min(error, recorded_at) filter (status = 'failed')
from {} where {}
group by metric order by metric
"""

_JUDGES: dict[Subjects, str] = {
    "answers": _WHO.format("scores", "is_one_of(experiment_id, $1) and subject_kind = 'run'"),
    "pairs": _WHO.format("comparisons", "is_one_of(comparison_id, $1) and decided_by is distinct from 'failed_output'"),
    "items": _WHO.format("scores", "is_one_of(left(experiment_id, -11), $1) and subject_at >= $2 and subject_at <= $3"),
}

_LABELS = """
select metric, subject_id || coalesce(' ' || other_run_id, '') as unit, value, label, labeller, is_fair, chance
from current_labels where turn is null order by metric, subject_id, labeller
"""

_SOURCES = f"""
    select experiment_id as id, run_group as owner, spec ->> 'name' as name, 'answers' as subjects, started_at,
           metadata ->> '{JUDGED_AGAIN}' as again from source.experiments
    union all
    select comparison_id, comparison_id, name, 'pairs', started_at, metadata ->> '{JUDGED_AGAIN}'
    from source.comparison_sets
    union all
    select name, name, name, 'items', started_at, spec -> 'metadata' ->> '{JUDGED_AGAIN}' from source.watermarks"""

_NEWEST = f"""
select id, name, subjects, started_at from ({_SOURCES})
where again is not null and (id = $1 or contains(again, to_json($1)::varchar))
order by id <> $1, started_at desc, id limit 1
"""

_LISTED = f"""
select any_value(id), any_value(name), any_value(subjects), min(started_at) as began from ({_SOURCES})
where again is not null group by owner order by began desc
"""

_TEXTS = """
select o.run_id, x.inputs, o.outputs
from outputs o join experiments e using (experiment_id)
left join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where is_one_of(o.experiment_id, $1) and is_one_of(o.run_id, $2)
"""
