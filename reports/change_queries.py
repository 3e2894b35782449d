"""SQL of how examples changed between a baseline and candidates."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from evalflows.store.layout import quoted

Change = Literal["improved", "regressed", "same", "flipped", "changed", "missing", "not_applicable"]
"""How a candidate's value of an example differs from the baseline's.

`flipped`: it differs although target, application and evaluator have the same version on both sides. `changed`: the
labels differ, of which none is better. `missing`: a repetition of a side failed or was not attempted.
`not_applicable`: a side has no score because it needs none, or was not sampled.
"""

CHANGES: tuple[Change, ...] = get_args(Change)

Sort = Literal["worst", "best", "position"]
ORDERS: Mapping[Sort, str] = {
    "worst": "relative_gain nulls last, position, metric, candidate_experiment_id",
    "best": "relative_gain desc nulls last, position, metric, candidate_experiment_id",
    "position": "position, example_id, metric, candidate_experiment_id",
}

WITHOUT_TEXTS = (
    *("candidate_experiment_id", "metric", "example_id", "position", "change", "gain", "value", "baseline_value"),
    *("label", "baseline_label", "missing", "baseline_missing"),
)
"""The columns of a change that are read for all examples; texts are read for those that are shown."""

OF_RUN = ("outputs", "comment", "error")

SELECTED = """
select {columns} from changes_between({candidate}, {baseline})
where is_one_of(candidate_experiment_id, $1)
      and ($2 is null or (candidate_experiment_id, example_id) in (select (unnest($2), unnest($3))))
"""
"""$1: all experiments; $2 and $3: candidates and examples that count, pair by pair, or null."""


def all_changes(baseline: str, candidates: Sequence[str]) -> str:
    """Return the query of all changes. DuckDB opens only the files of experiments whose ids are constants."""
    parts = (
        SELECTED.format(columns=", ".join(WITHOUT_TEXTS), candidate=quoted(one), baseline=quoted(baseline))
        for one in candidates
    )
    return "union all".join(parts)


def counts_query(changes: str) -> str:
    """Return the query of counts by metric and candidate, of a query of changes."""
    counts = ", ".join(f"count(*) filter (change = '{one}')" for one in CHANGES)
    return f"""
select candidate_experiment_id, metric, {counts} from ({changes}) group by candidate_experiment_id, metric
order by metric, list_position($1, candidate_experiment_id)
"""


def wanted_query(changes: str) -> str:
    """Return the query of some changes. $4: metrics, $5: changes, $6: candidates, each empty for all; $7: whether each
    example that changed in one way is wanted only once."""
    return f"""
select * from (
    select *, gain / nullif(max(abs(gain)) over (partition by metric), 0) as relative_gain from ({changes})
)
where (len($4) = 0 or list_contains($4, metric)) and (len($5) = 0 or list_contains($5, change))
      and (len($6) = 0 or list_contains($6, candidate_experiment_id))
qualify not $7 or row_number() over (partition by candidate_experiment_id, change, example_id
                                     order by abs(relative_gain) desc nulls last, metric) = 1
"""


def page_query(changes: str, sort: Sort) -> str:
    """Return the query of one page of some changes, each after how many there are. $8: limit, $9: offset."""
    columns = ", ".join(WITHOUT_TEXTS)
    return (
        f"select count(*) over (), {columns} from ({wanted_query(changes)}) order by {ORDERS[sort]} limit $8 offset $9"
    )


def lists_query(changes: str) -> str:
    """Return the query of the first $8 changes of each candidate and kind, each after how many there are."""
    order = "case change when 'improved' then -relative_gain else relative_gain end nulls last, position"
    of_list = "partition by candidate_experiment_id, change"
    return f"""
select count(*) over ({of_list}), {", ".join(WITHOUT_TEXTS)} from ({wanted_query(changes)})
qualify row_number() over ({of_list} order by {order}) <= $8
order by list_position($1, candidate_experiment_id), list_position($5, change), {order}
"""


SHOWN = """
with wanted as (
    select unnest($1) as experiment_id, unnest($2) as metric, unnest($3) as example_id, unnest($4) as sign,
           unnest(range(len($1))) as place
), sides as (
    select place, false as is_baseline, experiment_id, metric, example_id, sign from wanted
    union all select place, true, $5, metric, example_id, -sign from wanted
), shown as (
    select s.place, s.is_baseline,
           first({'run_id': v.run_id, 'comment': v.comment, 'error': v.error} order by
               v.status in ('failed', 'not_attempted') desc, s.sign * v.value desc nulls last, v.repetition) as run
    from sides s join run_values v using (experiment_id, metric, example_id)
    group by s.place, s.is_baseline
)
select place, is_baseline, o.outputs::varchar, run.comment, coalesce(run.error, o.error)
from shown left join outputs o on o.run_id = run.run_id
    and (o.experiment_id = $5 or list_contains($1, o.experiment_id))
"""

TEXTS = """
select distinct e.experiment_id, x.example_id, x.inputs::varchar, x.reference_outputs::varchar
from experiments e join examples x using (snapshot_id)
where is_one_of(e.experiment_id, $1) and list_contains($2, x.example_id)
"""
