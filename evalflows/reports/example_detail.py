"""One example of an experiment: its runs and scores, its place among the others, its labels and repeats, and its values
in earlier experiments."""

from collections.abc import Sequence
from datetime import datetime

from evalflows.specs.errors import NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.queries.lookup import rows_of_experiments
from evalflows.store.sql import ask, ask_records, record_of
from evalflows.store.store import Store

_REPEATS = """
select run_id, metric, repeats, spread from scores
where experiment_id = $1 and example_id = $2 and repeats > 1 and subject_kind = 'run' and turn is null
"""

NEWEST = 30
"""Experiments that are looked at."""


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
    with store.reading(only=rows_of_experiments(store, experiments)):
        examples, runs, scores = ask(store, (_EXAMPLE, ids), (_RUNS, ids), (_SCORES, ids))
    if not examples:
        raise NotFoundError(f"example {example_id!r}: in none of the experiments {', '.join(experiments)}")
    by_run = grouped((run_id, record_of(ScoreDetail, score)) for run_id, *score in scores)
    return record_of(
        ExampleDetail, examples[0], runs=[record_of(RunDetail, run, scores=by_run.get(run[0], [])) for run in runs]
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
    return {(repeats.run_id, repeats.metric): repeats for repeats in found}


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
