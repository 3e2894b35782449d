"""SQL of compared examples with what several systems answered."""

from evalflows.reports.change_queries import WITHOUT_TEXTS

LONGEST = 20_000
"""Characters of a JSON text from which on only its beginning is read."""

BEGINNING = 2_000
"""Characters that are read of a longer one."""


def _cut(column: str) -> str:
    """SQL for a JSON text, cut if it is very long, and for the number of its characters that are left out."""
    text = f"{column}::varchar"
    return f"""case when length({text}) > {LONGEST} then to_json(left({text}, {BEGINNING}))::varchar else {text} end,
       case when length({text}) > {LONGEST} then length({text}) - {BEGINNING} else 0 end"""


PLACES = """
select example_id, position, split from experiments join examples using (snapshot_id)
where experiment_id = $1 order by position, example_id
"""


def metrics_query(changes: str) -> str:
    """Return the query of the changes in some metrics, of a query of changes. $4: the metrics."""
    return f"""
select {", ".join(WITHOUT_TEXTS)} from ({changes}) where list_contains($4, metric)
order by list_position($4, metric), list_position($1, candidate_experiment_id)
"""


FOUND = """
select distinct example_id from (
    select example_id from experiments join examples using (snapshot_id)
    where is_one_of(experiment_id, $1)
          and (contains(lower(example_id), $2) or contains(lower(inputs::varchar), $3)
               or contains(lower(reference_outputs::varchar), $3))
    union all
    select example_id from outputs where is_one_of(experiment_id, $1) and contains(lower(outputs::varchar), $3)
)
"""
"""$2: a text in lower case; $3: the same as JSON writes it, without quotes."""

ANSWERS = f"""
with lowest as (
    select run_id, min(value) as value from run_values
    where is_one_of(experiment_id, $1) and list_contains($2, example_id) and metric = $3 group by run_id
)
select experiment_id, example_id, {_cut("outputs")}, status, error, repetition,
       count(*) over (partition by experiment_id, example_id)
from outputs left join lowest using (run_id)
where is_one_of(experiment_id, $1) and list_contains($2, example_id)
qualify row_number() over (
    partition by experiment_id, example_id
    order by status in ('failed', 'not_attempted') desc, lowest.value nulls last, repetition) = 1
"""

ONLY_ANSWERS = f"""
select experiment_id, example_id, {_cut("outputs")}, status, error, repetition, 1
from outputs where is_one_of(experiment_id, $1) and list_contains($2, example_id)
"""
"""The same without repetitions, in a third of the time."""

NOTHING = "select null where false"

REASONS = """
select experiment_id, example_id, metric, arg_min(coalesce(error, replace(status, '_', ' ')), repetition)
from run_values
where is_one_of(experiment_id, $1) and list_contains($2, example_id) and list_contains($3, metric)
      and status <> 'scored'
group by experiment_id, example_id, metric
"""

TEXTS = f"""
select example_id, {_cut("inputs")}, {_cut("reference_outputs")}
from experiments join examples using (snapshot_id)
where is_one_of(experiment_id, $1) and list_contains($2, example_id)
qualify row_number() over (partition by example_id order by list_position($1, experiment_id)) = 1
"""
