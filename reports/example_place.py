"""An example among the others of its experiment, and what people said about its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an example stands in the dataset's order."""

    number: int  # from 1
    count: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonsLabel:
    """A person's newest label of a run, or of a pair of runs."""

    run_id: str
    repetition: int | None
    metric: str
    value: float | None
    label: str | None
    labeller: str | None
    comment: str | None
    source: str
    is_pair: bool
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
    (rows,) = ask(store, (_PLACE, [snapshot, example]))
    return Place(**dict(zip(Place.__slots__, rows[0], strict=True))) if rows else None


def labels_of(store: Store, experiment: str, runs: Sequence[str]) -> list[PersonsLabel]:
    """Return people's labels of these runs of an experiment, newest first."""
    (rows,) = ask(store, (_LABELS, [list(runs), experiment]))
    return [PersonsLabel(**dict(zip(PersonsLabel.__slots__, row, strict=True))) for row in rows]


def repeats_of(store: Store, experiment: str, example: str) -> dict[tuple[str, str], Repeats]:
    """Return the repeated judgements of an example's runs, by run and metric."""
    (rows,) = ask(store, (_REPEATS, [experiment, example]))
    found = [Repeats(**dict(zip(Repeats.__slots__, row, strict=True))) for row in rows]
    return {(one.run_id, one.metric): one for one in found}


_PLACE = """
select number, count, before, after from (
    select example_id, row_number() over dataset as number, count(*) over () as count,
           lag(example_id) over dataset as before, lead(example_id) over dataset as after
    from examples where snapshot_id = $1 window dataset as (order by position, example_id)
) where example_id = $2
"""

_LABELS = """
select case when list_contains($1, l.subject_id) then l.subject_id else l.other_run_id end as run, o.repetition,
       l.metric, l.value, l.label, l.labeller, l.comment, l.source, l.other_run_id is not null, l.recorded_at
from current_labels l
left join (select run_id, repetition from outputs where experiment_id = $2) o
    on o.run_id = case when list_contains($1, l.subject_id) then l.subject_id else l.other_run_id end
where list_contains($1, l.subject_id) or list_contains($1, l.other_run_id)
order by l.recorded_at desc, l.metric
"""

_REPEATS = """
select run_id, metric, repeats, spread from scores
where experiment_id = $1 and example_id = $2 and repeats > 1 and subject_kind = 'run' and turn is null
"""
