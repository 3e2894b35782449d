"""The examples on which a candidate did worst, for someone who wants to see what a figure is made of."""

import re
from dataclasses import dataclass

from specs.experiment import ExperimentSpec
from store.catalog import ask
from store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstItem:
    """One example, with the candidate's worst answer to it and the baseline's best; values are over all repetitions."""

    example_id: str
    inputs: str  # JSON, as are the outputs
    value: float | None  # None where nothing was scored
    missing: int  # repetitions that failed, or were not attempted
    outputs: str | None
    comment: str | None
    error: str | None
    baseline_value: float | None
    baseline_missing: int
    baseline_outputs: str | None
    baseline_error: str | None


def worst_items(
    store: Store, candidate: str, baseline: str | None, metric: str, count: int, *, missing_first: bool = False
) -> list[WorstItem]:
    """Where an experiment fell the most against another one by a metric, the worst first; or where it lies the lowest,
    where there is no other. What lower means goes by the metric's direction.

    Of two experiments, only examples that both have with the same inputs, and on which the candidate is worse or
    something is missing. `missing_first` puts those with something missing before the rest; else they are the last. Of
    what is made of repetitions (pass@k), the metric that it is made of is shown.
    """
    name = _of_runs(metric)
    sign = 1.0 if is_higher_better(store, candidate, name) else -1.0
    (rows,) = ask(store, (_WORST, [candidate, baseline, name, sign, missing_first, count]))
    return [WorstItem(**dict(zip(WorstItem.__slots__, row, strict=True))) for row in rows]


def is_higher_better(store: Store, experiment: str, metric: str) -> bool:
    """Which way a metric of an experiment is better, as its spec has it."""
    row = store.read("experiments", experiment)[0]
    return bool(ExperimentSpec.model_validate_json(row.spec).direction(metric).higher_is_better)


def _of_runs(metric: str) -> str:
    return re.sub(r" pass[@^]\d+$", "", metric)


_WORST = """
with judged as (
    select experiment_id, run_id, example_id, repetition, metric, value, status, comment, error from scores
    where subject_kind = 'run' and turn is null
    union all
    select experiment_id, run_id, example_id, repetition, metric, value, status, null, null from measures
), runs as (
    -- an example without a row was not attempted
    select e.experiment_id, e.repetitions, x.example_id, x.position, x.inputs::varchar as inputs, j.run_id, j.status,
           case when j.status = 'scored' then j.value end as value, j.comment, coalesce(j.error, o.error) as error,
           o.outputs::varchar as outputs, j.repetition,
           coalesce(j.status, 'not_attempted') in ('failed', 'not_attempted') as lost
    from experiments e
    join examples x using (snapshot_id)
    left join judged j
        on j.experiment_id = e.experiment_id and j.example_id = x.example_id and j.metric = $3
    left join outputs o on o.experiment_id = e.experiment_id and o.run_id = j.run_id
    where e.experiment_id in ($1, $2)
), sides as (
    select experiment_id, example_id, inputs, any_value(position) as position, avg(value) as value,
           count(*) filter (run_id is not null and lost) + any_value(repetitions) - count(run_id) as missing,
           -- the run that shows why: what is missing, else the candidate's worst and the baseline's best
           first({'outputs': outputs, 'comment': comment, 'error': error} order by
               lost desc, (case when experiment_id = $1 then $4 else -$4 end) * value nulls last, repetition) as shown
    from runs
    group by experiment_id, example_id, inputs
), paired as (
    select c.*, b.value as baseline_value, coalesce(b.missing, 0) as baseline_missing, b.shown as baseline_shown,
           c.missing + coalesce(b.missing, 0) > 0 as lost,
           $4 * (case when $2 is null then -c.value else b.value - c.value end) as fall
    from sides c
    left join sides b on b.experiment_id = $2 and b.example_id = c.example_id and b.inputs = c.inputs
    where c.experiment_id = $1 and ($2 is null or b.example_id is not null)
)
select example_id, inputs, value, missing, shown.outputs, shown.comment, shown.error,
       baseline_value, baseline_missing, baseline_shown.outputs, baseline_shown.error
from paired
where lost or ($2 is null and value is not null) or fall > 0
order by $5 and lost desc, fall desc nulls last, position
limit $6
"""
