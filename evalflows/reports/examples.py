"""The examples of an experiment: their list, everything of one of them, its place among the others, its past, and
the distribution of values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from evalflows.analysis.figures import figure
from evalflows.specs.errors import MEASURES, NotFoundError
from evalflows.store.sql import ask, ask_records, record_of
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDetail:
    """One score of a run, with what the evaluator said."""

    metric: str
    value: float | None
    label: str | None
    status: str
    comment: str | None
    error: str | None
    evaluator: str
    evaluator_version: str
    judge_model: str | None
    decided_by: str | None
    metadata: str | None  # JSON
    cost_usd: float | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """One run: a target's answer in one repetition."""

    run_id: str
    experiment_id: str
    repetition: int
    status: str
    outputs: str | None  # JSON, as are the steps
    steps: str | None
    error: str | None
    error_trace: str | None
    latency_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    calls: int | None
    trace_id: str | None
    scores: Sequence[ScoreDetail]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDetail:
    """One example as in the first experiment that has it, and its runs by experiment, then repetition."""

    example_id: str
    inputs: str  # JSON, as are reference, metadata and attachments
    reference_outputs: str | None
    metadata: str | None
    attachments: str | None
    split: str | None
    cluster: str | None
    runs: Sequence[RunDetail]


def example_detail(store: Store, experiments: Sequence[str], example_id: str) -> ExampleDetail:
    """Return everything of an example in experiments, given by id. Raise InputError if none of them has it."""
    ids = [list(experiments), example_id]
    examples, runs, scores = ask(store, (_EXAMPLE, ids), (_RUNS, ids), (_SCORES, ids))
    if not examples:
        raise NotFoundError(f"example {example_id!r}: in none of the experiments {', '.join(experiments)}")
    by_run: dict[str, list[ScoreDetail]] = {}
    for run_id, *score in scores:
        by_run.setdefault(run_id, []).append(record_of(ScoreDetail, score))
    return record_of(
        ExampleDetail,
        examples[0],
        runs=[record_of(RunDetail, run, scores=by_run.get(run[0], [])) for run in runs],
    )


_EXAMPLE = """
select x.example_id, x.inputs::varchar, x.reference_outputs::varchar, x.metadata::varchar, x.attachments::varchar,
       x.split, x.cluster
from experiments e join examples x using (snapshot_id)
where is_one_of(e.experiment_id, $1) and x.example_id = $2
order by list_position($1, e.experiment_id) limit 1
"""

_RUNS = """
select run_id, experiment_id, repetition, status, outputs::varchar, steps::varchar, error, error_trace, latency_s,
       tokens_in, tokens_out, cost_usd, calls, trace_id
from outputs where is_one_of(experiment_id, $1) and example_id = $2
order by list_position($1, experiment_id), repetition
"""

_SCORES = """
select run_id, metric, value, label, status, comment, error, evaluator, evaluator_version, judge_model, decided_by,
       metadata::varchar, cost_usd, recorded_at
from scores where is_one_of(experiment_id, $1) and example_id = $2 and subject_kind = 'run' and turn is null
order by metric, evaluator_version
"""


NEWEST = 30
"""Experiments that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastValue:
    """One metric of the example in one experiment: the mean over repetitions, else the labels."""

    experiment_id: str
    name: str
    target: str
    started_at: datetime
    metric: str
    value: float | None
    labels: str | None
    missing: int  # repetitions that failed or were not attempted
    same_example: bool  # whether inputs and reference are those that the first of the given experiments has


def past_values(store: Store, experiments: Sequence[str], example_id: str, metrics: Sequence[str]) -> list[PastValue]:
    """Return an example's values in these experiments and in the newest on their datasets, oldest first."""
    (found,) = ask(store, (_BESIDE, [list(experiments), NEWEST]))
    ids = [identity for (identity,) in found]
    return ask_records(store, PastValue, _PAST, [ids, example_id, list(metrics), experiments[0]])


_BESIDE = """
with given as (select dataset_name, snapshot_id from experiments where is_one_of(experiment_id, $1))
select experiment_id from experiments e
where exists (select 1 from given g where g.dataset_name = e.dataset_name or g.snapshot_id = e.snapshot_id)
order by list_contains($1, experiment_id) desc, started_at desc limit $2
"""

_PAST = """
with runs as (
    select experiment_id, name, target, started_at, snapshot_id from experiments where is_one_of(experiment_id, $1)
), contents as (
    select snapshot_id, inputs::varchar as inputs, reference_outputs::varchar as reference
    from examples where example_id = $2 and snapshot_id in (select snapshot_id from runs)
), asked as (
    select c.inputs, c.reference from contents c join runs r using (snapshot_id) where r.experiment_id = $4
)
select r.experiment_id, r.name, r.target, r.started_at, v.metric, avg(v.value) filter (v.status = 'scored'),
       string_agg(distinct v.label, ', ' order by v.label) filter (v.status = 'scored' and v.value is null),
       count(*) filter (v.status in ('failed', 'not_attempted')),
       any_value(c.inputs = a.inputs and c.reference is not distinct from a.reference)
from run_values v join runs r using (experiment_id) join contents c using (snapshot_id) cross join asked a
where is_one_of(v.experiment_id, $1) and v.example_id = $2 and list_contains($3, v.metric)
group by r.experiment_id, r.name, r.target, r.started_at, v.metric
order by r.started_at, r.experiment_id, list_position($3, v.metric)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an example stands in the dataset's order."""

    number: int  # from 1
    count: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLabel:
    """A person's newest label of a run, or of a pair of runs; or any label of a program."""

    run_id: str
    repetition: int | None
    metric: str
    value: float | None
    label: str | None
    labeller: str | None
    comment: str | None
    source: str
    is_pair: bool
    by_machine: bool
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How often a judge was asked for one score, and how its answers spread."""

    run_id: str
    metric: str
    repeats: int
    spread: float | None  # standard deviation


def place_of(store: Store, snapshot: str, example: str) -> Place | None:
    """Return an example's place among those of a snapshot; None if it is not there."""
    return next(iter(ask_records(store, Place, _PLACE, [snapshot, example])), None)


def labels_of(store: Store, experiment: str, runs: Sequence[str]) -> list[GivenLabel]:
    """Return the labels of these runs of an experiment: people's, then programs', each newest first."""
    return ask_records(store, GivenLabel, _PLACE_LABELS, [list(runs), experiment])


def repeats_of(store: Store, experiment: str, example: str) -> dict[tuple[str, str], Repeats]:
    """Return the repeated judgements of an example's runs, by run and metric."""
    found = ask_records(store, Repeats, _REPEATS, [experiment, example])
    return {(one.run_id, one.metric): one for one in found}


_PLACE = """
select number, count, before, after from (
    select example_id, row_number() over dataset as number, count(*) over () as count,
           lag(example_id) over dataset as before, lead(example_id) over dataset as after
    from examples where snapshot_id = $1 window dataset as (order by position, example_id)
) where example_id = $2
"""

_PLACE_LABELS = """
select case when list_contains($1, l.subject_id) then l.subject_id else l.other_run_id end as run, o.repetition,
       l.metric, l.value, l.label, l.labeller, l.comment, l.source, l.other_run_id is not null, l.source = 'machine',
       l.recorded_at
from (from current_labels union all by name from machine_labels) l
left join (select run_id, repetition from outputs where experiment_id = $2) o
    on o.run_id = case when list_contains($1, l.subject_id) then l.subject_id else l.other_run_id end
where list_contains($1, l.subject_id) or list_contains($1, l.other_run_id)
order by l.source = 'machine', l.recorded_at desc, l.metric
"""

_REPEATS = """
select run_id, metric, repeats, spread from scores
where experiment_id = $1 and example_id = $2 and repeats > 1 and subject_kind = 'run' and turn is null
"""


Shown = Literal["all", "failed", "missing"]
"""All examples, those with a failed answer, or those that lack a value of the metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which examples are wanted, and in which order."""

    metric: str | None = None  # None: in the dataset's order
    worst_first: bool = True
    higher_is_better: bool = True
    shown: Shown = "all"
    text: str | None = None  # in the inputs or an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemValue:
    """One metric of an example: the mean over its repetitions, or its labels."""

    value: float | None
    label: str | None
    missing: int  # runs that failed or were not attempted
    not_applicable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One example of an experiment."""

    example_id: str
    position: int
    split: str | None
    inputs: str  # JSON
    outputs: str | None  # JSON, of the first repetition that was answered
    answered: int
    failed: int
    error: str | None
    values: Mapping[str, ItemValue]  # by metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """One page of examples."""

    items: Sequence[Item]
    count: int  # of all pages


def items_of(store: Store, experiment: str, snapshot: str, wanted: ItemFilter, *, limit: int, offset: int = 0) -> Items:
    """Return one page of the examples of an experiment on a snapshot."""
    order = "value asc nulls last" if wanted.higher_is_better == wanted.worst_first else "value desc nulls last"
    query = _WANTED.format(order=f"{order}, position" if wanted.metric else "position")
    values = [experiment, snapshot, wanted.metric, wanted.shown, wanted.text]

    def read() -> Items:
        (page,) = ask(store, (f"{query} limit $6 offset $7", [*values, limit, offset]))
        ids = [row[1] for row in page]
        rows, scores = ask(store, (_ROWS, [experiment, snapshot, ids]), (_VALUES, [experiment, ids]))
        by_example: dict[str, dict[str, ItemValue]] = {}
        for example, metric, *value in scores:
            by_example.setdefault(example, {})[metric] = record_of(ItemValue, value)
        items = [record_of(Item, row, values=by_example.get(row[0], {})) for row in rows]
        return Items(items=items, count=page[0][0] if page else 0)

    return store.steady(read)


_WANTED = """
with answers as (
    select example_id, count(*) filter (status = 'failed') as failed,
           bool_or($5 is not null and contains(lower(outputs::varchar), lower($5))) as has_text
    from outputs where experiment_id = $1 group by example_id
), scored as (
    select example_id, avg(value) filter (status = 'scored') as value,
           count(*) filter (status in ('failed', 'not_attempted')) as missing, count(*) as n
    from run_values where experiment_id = $1 and metric = $3 group by example_id
)
select count(*) over (), x.example_id
from examples x left join answers a using (example_id) left join scored s using (example_id)
where x.snapshot_id = $2
  and case $4 when 'failed' then a.failed > 0
              when 'missing' then case when $3 is null then a.example_id is null or a.failed > 0
                                       else s.n is null or s.missing > 0 end
              else true end
  and ($5 is null or a.has_text or contains(lower(x.inputs::varchar), lower($5)) or x.example_id = $5)
order by {order}
"""

_ROWS = """
with answers as (
    select example_id, arg_min(outputs::varchar, repetition) filter (status = 'ok') as outputs,
           count(*) filter (status = 'ok') as answered, count(*) filter (status = 'failed') as failed,
           arg_min(error, repetition) filter (status = 'failed') as error
    from outputs where experiment_id = $1 and list_contains($3, example_id) group by example_id
)
select x.example_id, x.position, x.split, x.inputs::varchar, a.outputs, coalesce(a.answered, 0), coalesce(a.failed, 0),
       a.error
from examples x left join answers a using (example_id)
where x.snapshot_id = $2 and list_contains($3, x.example_id)
order by list_position($3, x.example_id)
"""

_VALUES = """
select example_id, metric, avg(value) filter (status = 'scored'),
       array_to_string(list_sort(list(distinct label) filter (status = 'scored' and value is null)), ' / '),
       count(*) filter (status in ('failed', 'not_attempted')), count(*) filter (status = 'not_applicable')
from run_values where experiment_id = $1 and list_contains($2, example_id)
group by example_id, metric
"""


MOST_VALUES = 10
"""A metric with more different values is counted in BINS intervals of equal width."""

BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often each value, interval of values or label occurs among the scored runs."""

    metric: str
    scored: int
    missing: int
    not_applicable: int
    counts: Sequence[tuple[str, int]]  # in order of the values; labels by frequency


def distributions(store: Store, experiment: str) -> list[Distribution]:
    """Return the distribution of each metric, measures last. Metrics without a scored run have no counts."""
    (rows,) = ask(store, (_DISTRIBUTIONS, [experiment, [*MEASURES], MOST_VALUES, BINS]))
    return [
        record_of(Distribution, row, counts=_counts(row[0], lowest, width, counted))
        for *row, lowest, width, counted in rows
    ]


def _counts(
    metric: str, lowest: float | None, width: float | None, counted: Sequence[Mapping[str, Any]]
) -> list[tuple[str, int]]:
    """Return how often each value, or each bin from the lowest one on, and each label occurs, in words."""
    numbers = {one["place"]: one["n"] for one in counted if one["place"] is not None}
    if lowest is None or width is None:
        values = [(f"{value:.4g}", n) for value, n in numbers.items()]
    else:
        ends = [figure(lowest + place * width, metric) for place in range(BINS + 1)]
        values = [(f"{ends[place]} to {ends[place + 1]}", numbers.get(place, 0)) for place in range(BINS)]
    return [*values, *((one["label"], one["n"]) for one in counted if one["label"] is not None)]


# One query: planning one over the scores takes most of its time.
_DISTRIBUTIONS = """
with found as materialized (
    select metric, value, label, status from run_values where experiment_id = $1
), summed as (
    select metric, count(*) filter (status = 'scored') as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as missing,
           count(*) filter (status = 'not_applicable') as not_applicable,
           min(value) filter (status = 'scored') as lowest,
           max(value) filter (status = 'scored') - min(value) filter (status = 'scored') as spread,
           count(distinct value) filter (status = 'scored') > $3 as is_binned
    from found group by metric
), counted as (
    select metric, case when value is null then label end as label,
           case when is_binned then least(floor((value - lowest) / spread * $4), $4 - 1) else value end as place,
           count(*) as n
    from found join summed using (metric) where status = 'scored' and (value is not null or label is not null)
    group by all
)
select metric, scored, missing, not_applicable, case when is_binned then lowest end,
       case when is_binned then spread / $4 end, coalesce(counts, [])
from summed left join (
    select metric, list({'place': place, 'label': label, 'n': n} order by place nulls last, n desc, label) as counts
    from counted group by metric
) using (metric)
order by coalesce(list_position($2, metric), 0), metric
"""
