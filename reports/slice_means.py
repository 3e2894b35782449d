"""The means of an experiment's metrics on slices: its splits, and the values of metadata fields that have few."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.specs.metric_names import MEASURES
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

MOST_VALUES = 12
"""A metadata field with more different values makes no slices."""

FEW = 10
"""A mean of fewer examples says little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMean:
    """The mean of one metric on the examples with one value of a field; repetitions are averaged within them first."""

    metric: str
    mean: float | None
    n_examples: int  # with a value
    missing: int  # runs that failed or were not attempted

    @property
    def is_few(self) -> bool:
        return self.n_examples < FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The examples with one value of a field."""

    field: str  # `split`, or `metadata.NAME`
    value: str
    n_examples: int
    means: Sequence[SliceMean]

    def mean(self, metric: str) -> SliceMean | None:
        return next((one for one in self.means if one.metric == metric), None)


def slice_means(store: Store, experiment: str, snapshot: str) -> list[Slice]:
    """Return the slices of an experiment on a snapshot, by field and value, with the metrics of evaluators."""
    sizes, means = ask(
        store,
        (f"{_SLICES} select field, value, count(*) from slices group by all order by all", [snapshot, MOST_VALUES]),
        (f"{_SLICES} {_MEANS}", [snapshot, MOST_VALUES, experiment, [*MEASURES]]),
    )
    by_slice: dict[tuple[str, str], list[SliceMean]] = {}
    for field, value, *mean in means:
        by_slice.setdefault((field, value), []).append(SliceMean(**dict(zip(SliceMean.__slots__, mean, strict=True))))
    return [
        Slice(field=field, value=value, n_examples=count, means=by_slice.get((field, value), []))
        for field, value, count in sizes
    ]


_SLICES = """
with fields as (
    select example_id, 'split' as field, split as value from examples where snapshot_id = $1 and split is not null
    union all
    select example_id, 'metadata.' || key, metadata ->> ('$."' || replace(key, '"', '\\"') || '"')
    from (select example_id, metadata, unnest(json_keys(metadata)) as key from examples
          where snapshot_id = $1 and json_type(metadata) = 'OBJECT')
), few as (
    select field from fields where value is not null group by field having count(distinct value) between 2 and $2
), slices as (
    select example_id, field, value from fields semi join few using (field) where value is not null
)
"""

_MEANS = """
, by_example as (
    select example_id, metric, avg(value) filter (status = 'scored') as value,
           count(*) filter (status in ('failed', 'not_attempted')) as missing
    from run_values where experiment_id = $3 and not list_contains($4, metric)
    group by example_id, metric having count(value) > 0 or missing > 0
)
select field, s.value, metric, avg(b.value), count(b.value), sum(missing)::bigint
from slices s join by_example b using (example_id) group by all order by all
"""
