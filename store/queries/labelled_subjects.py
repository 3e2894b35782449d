"""Which experiments and comparisons can be labelled, and who has labelled how many answers of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

NEWEST = 200
"""Experiments and comparisons that are listed, at most of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An experiment or a comparison of stored answers."""

    subject_id: str
    name: str
    is_pairs: bool
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One person's labels of one metric that count."""

    subject_id: str
    name: str
    metric: str
    labeller: str | None
    n_labels: int
    last_at: datetime


def reviewable(store: Store) -> list[Subject]:
    """Return the newest experiments and comparisons, newest first."""
    (rows,) = ask(store, (_SUBJECTS, [NEWEST]))
    return [Subject(**dict(zip(Subject.__slots__, row, strict=True))) for row in rows]


def labelled_subjects(store: Store, subject: str | None = None, limit: int = 50) -> Sequence[Labelled]:
    """Return who has labelled what, the last labels first; of one experiment or comparison if its id is given."""
    (rows,) = ask(store, (_LABELLED, [subject, limit]))
    return [Labelled(**dict(zip(Labelled.__slots__, row, strict=True))) for row in rows]


_SUBJECTS = """
(select experiment_id, name, false, started_at from experiments order by started_at desc limit $1)
union all
(select comparison_id, name, true, started_at from comparison_sets where n_votes is null
 order by started_at desc limit $1)
order by 4 desc
"""

_LABELLED = """
with given as (
    select experiment_id, subject_id, other_run_id, metric, labeller, recorded_at
    from current_labels
    where subject_kind = 'run' and turn is null
), paired as (
    select distinct c.comparison_id, c.left_run_id, c.right_run_id
    from comparisons c
    semi join given g on g.subject_id = c.left_run_id and g.other_run_id = c.right_run_id
), of_subject as (
    select experiment_id as subject, metric, labeller, recorded_at from given where other_run_id is null
    union all
    select p.comparison_id, g.metric, g.labeller, g.recorded_at
    from given g join paired p on p.left_run_id = g.subject_id and p.right_run_id = g.other_run_id
), named as (
    select experiment_id as subject, name from experiments union all select comparison_id, name from comparison_sets
)
select s.subject, coalesce(n.name, s.subject), s.metric, s.labeller, count(*), max(s.recorded_at)
from of_subject s left join named n on n.subject = s.subject
where $1::varchar is null or s.subject = $1
group by all
order by 6 desc limit $2
"""
