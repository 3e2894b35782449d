"""The values that an example had in earlier experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

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
