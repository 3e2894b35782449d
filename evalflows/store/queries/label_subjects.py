"""What people can label: experiments, comparisons and their judged metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.store.sql import ask_records
from evalflows.store.store import Store

NEWEST, NEWEST_JUDGED = 200, 12
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
    return ask_records(store, Subject, _SUBJECTS, [NEWEST])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMetric(Subject):
    """A metric of a judge in an experiment or a comparison, and how many of its items anybody has labelled."""

    metric: str
    n_items: int
    n_labelled: int


def judged_metrics(store: Store) -> list[JudgedMetric]:
    """Return what judges of the newest experiments and comparisons judged, the newest first."""
    return ask_records(store, JudgedMetric, _JUDGED_METRICS, [NEWEST_JUDGED])


def labelled_subjects(store: Store, subject: str | None) -> Sequence[Labelled]:
    """Return the last 50 who have labelled what, the newest labels first; of one experiment or comparison if its id is
    given."""
    return ask_records(store, Labelled, _SUBJECTS_LABELLED, [subject])


_SUBJECTS = """
(select experiment_id, name, false, started_at from experiments order by started_at desc limit $1)
union all
(select comparison_id, name, true, started_at from comparison_sets where n_votes is null
 order by started_at desc limit $1)
order by 4 desc
"""

_JUDGED_METRICS = """
with runs as (
    select experiment_id as subject, name, false as is_pairs, started_at from experiments
    order by started_at desc limit $1
), sets as (
    select comparison_id, name, true, started_at from comparison_sets where n_votes is null
    order by started_at desc limit $1
), judged as (
    select experiment_id as subject, metric, count(distinct run_id) as n from scores
    where experiment_id in (select subject from runs) and judge_model is not null and subject_kind = 'run'
      and turn is null and status = 'scored' group by all
    union all
    select comparison_id, metric, count(distinct (left_run_id, right_run_id)) from comparisons
    where comparison_id in (select comparison_id from sets) group by all
), given as (
    select experiment_id as subject, metric, count(distinct subject_id) as n from current_labels
    where subject_kind = 'run' and turn is null and other_run_id is null group by all
    union all
    select c.comparison_id, l.metric, count(distinct (c.left_run_id, c.right_run_id))
    from current_labels l join comparisons c on c.left_run_id = l.subject_id and c.right_run_id = l.other_run_id
    where c.comparison_id in (select comparison_id from sets) group by all
)
select subject, s.name, s.is_pairs, s.started_at, metric, j.n, coalesce(g.n, 0)
from (select * from runs union all select * from sets) s join judged j using (subject)
left join given g using (subject, metric)
order by s.started_at desc, subject, metric limit $1
"""

_SUBJECTS_LABELLED = """
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
order by 6 desc limit 50
"""
