"""The list of an experiment's examples, filtered and sorted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evalflows.store.sql import ask, record_of
from evalflows.store.store import Store

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
