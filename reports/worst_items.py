"""The examples on which a candidate did worst."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.specs.metric_names import base_metric
from evalflows.specs.metric_slices import sliced_metric
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstItem:
    """One example, with the candidate's worst answer and the baseline's best; values are means over repetitions."""

    example_id: str
    inputs: str  # JSON, as are the outputs
    value: float | None  # None if nothing was scored
    missing: int  # repetitions that failed or were not attempted
    outputs: str | None
    comment: str | None
    error: str | None
    baseline_value: float | None
    baseline_missing: int
    baseline_outputs: str | None
    baseline_error: str | None


def worst_items(
    store: Store, candidate: str, baseline: str | None, metric: str, count: int | None, *, missing_first: bool = False
) -> list[WorstItem]:
    """Return the examples with the largest drop from a baseline in a metric, worst first; without a baseline, those
    with the worst values. `count` of them, or all. The metric's direction defines "worse".

    With a baseline, only examples that both experiments have with the same inputs, and where the candidate is worse or
    a value is missing. `missing_first` puts examples with missing values first, otherwise they come last. For pass@k
    metrics, the base metric is shown. Of a slice, `contains@split=hard`, only its examples.
    """
    sliced = sliced_metric(metric)
    name = base_metric(sliced.metric)
    sign = 1.0 if is_higher_better(store, candidate, name) else -1.0
    most = count if sliced.path is None else None
    (ranked,) = ask(store, (_WORST, [candidate, baseline, name, sign, missing_first, most]))
    if sliced.path is not None:
        from evalflows.store.queries.example_slices import ids_in  # late: specs are slow to import

        within = ids_in(store, store.read("experiments", candidate)[0], sliced)
        ranked = [row for row in ranked if row[0] in within][:count]
    return _with_texts(store, candidate, baseline, ranked)


def _with_texts(
    store: Store, candidate: str, baseline: str | None, ranked: Sequence[tuple[Any, ...]]
) -> list[WorstItem]:
    """Return the ranked examples with their texts. Those of all examples might not fit into memory."""
    if not ranked:
        return []
    runs = [run for row in ranked for run in row[1:3] if run is not None]
    examples, outputs = ask(
        store,
        (_INPUTS, [store.read("experiments", candidate)[0].snapshot_id, [row[0] for row in ranked]]),
        (_OUTPUTS, [candidate, baseline, runs]),
    )
    inputs_of, outputs_of = dict(examples), dict(outputs)
    return [
        WorstItem(
            example_id=example,
            inputs=inputs_of[example],
            outputs=outputs_of.get(run),
            baseline_outputs=outputs_of.get(baseline_run),
            **dict(zip(_FIGURES, figures, strict=True)),
        )
        for example, run, baseline_run, *figures in ranked
    ]


def is_higher_better(store: Store, experiment: str, metric: str) -> bool:
    """Return whether higher is better for a metric, according to the experiment's spec."""
    from evalflows.store.row_specs import experiment_spec  # late: specs are slow to import

    row = store.read("experiments", experiment)[0]
    return bool(experiment_spec(row).direction(metric).higher_is_better)


_WORST = """
with runs as (
    -- an example without a row was not attempted
    select e.experiment_id, e.repetitions, x.example_id, x.position, x.content, j.run_id, j.status,
           case when j.status = 'scored' then j.value end as value, j.comment, coalesce(j.error, o.error) as error,
           j.repetition, coalesce(j.status, 'not_attempted') in ('failed', 'not_attempted') as is_missing
    from experiments e
    join (
        select snapshot_id, example_id, position, case when $2 is not null then md5(inputs::varchar) end as content
        from examples
    ) x using (snapshot_id)
    -- the ids are repeated, since DuckDB would otherwise read the rows of all experiments
    left join run_values j
        on j.experiment_id = e.experiment_id and j.example_id = x.example_id and j.metric = $3
           and j.experiment_id in ($1, $2)
    left join outputs o on o.experiment_id = e.experiment_id and o.run_id = j.run_id and o.experiment_id in ($1, $2)
    where e.experiment_id in ($1, $2)
), by_experiment as (
    select experiment_id, example_id, any_value(content) as content, any_value(position) as position,
           avg(value) as value,
           count(*) filter (run_id is not null and is_missing) + any_value(repetitions) - count(run_id) as missing,
           -- the run to show: a missing one, else the candidate's worst and the baseline's best
           first({'run_id': run_id, 'comment': comment, 'error': error} order by
               is_missing desc,
               (case when experiment_id = $1 then $4 else -$4 end) * value nulls last, repetition) as shown
    from runs
    group by experiment_id, example_id
), paired as (
    select c.*, b.value as baseline_value, coalesce(b.missing, 0) as baseline_missing, b.shown as baseline_shown,
           c.missing + coalesce(b.missing, 0) > 0 as is_missing,
           $4 * (case when $2 is null then -c.value else b.value - c.value end) as loss
    from by_experiment c
    left join by_experiment b on b.experiment_id = $2 and b.example_id = c.example_id and b.content = c.content
    where c.experiment_id = $1 and ($2 is null or b.example_id is not null)
)
select example_id, shown.run_id, baseline_shown.run_id, value, missing, shown.comment, shown.error,
       baseline_value, baseline_missing, baseline_shown.error
from paired
where is_missing or ($2 is null and value is not null) or loss > 0
order by $5 and is_missing desc, loss desc nulls last, position
limit $6
"""

_FIGURES = ("value", "missing", "comment", "error", "baseline_value", "baseline_missing", "baseline_error")
"""The fields of an item that the columns after the ids are."""

# DuckDB makes list_contains a filter of its scan, with which it held nearly all texts: 1.2 GB of 1,000 with 1 MB each.
_INPUTS = """
select example_id, inputs::varchar
from examples
where snapshot_id = $1 and list_position($2, example_id) > 0
"""

_OUTPUTS = """
select run_id, outputs::varchar from outputs where experiment_id in ($1, $2) and list_position($3, run_id) > 0
"""
