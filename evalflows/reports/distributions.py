"""The distribution of a metric's values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.analysis.figures import figure
from evalflows.specs.metric_names import MEASURES
from evalflows.store.sql import ask, record_of
from evalflows.store.store import Store

MOST_VALUES = 10
"""A metric with more different values is counted in BINS intervals of equal width."""

BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often each value, interval of values or label occurs among the scored runs."""

    metric: str
    scored: int
    missing: int
    not_applicable: int
    counts: Sequence[tuple[str, int]]  # in order of the values; labels by frequency


def distributions(store: Store, experiment: str) -> list[Distribution]:
    """Return the distribution of each metric, measures last. Metrics without a scored run have no counts."""
    (rows,) = ask(store, (_DISTRIBUTIONS, [experiment, [*MEASURES], MOST_VALUES, BINS]))
    return [
        record_of(Distribution, row, counts=_counts(row[0], lowest, width, counted))
        for *row, lowest, width, counted in rows
    ]


def _counts(
    metric: str, lowest: float | None, width: float | None, counted: Sequence[Mapping[str, Any]]
) -> list[tuple[str, int]]:
    """Return how often each value, or each bin from the lowest one on, and each label occurs, in words."""
    numbers = {row["place"]: row["n"] for row in counted if row["place"] is not None}
    if lowest is None or width is None:
        values = [(f"{value:.4g}", n) for value, n in numbers.items()]
    else:
        ends = [figure(lowest + index * width, metric) for index in range(BINS + 1)]
        values = [(f"{ends[index]} to {ends[index + 1]}", numbers.get(index, 0)) for index in range(BINS)]
    return [*values, *((row["label"], row["n"]) for row in counted if row["label"] is not None)]


# One query: planning one over the scores takes most of its time.
_DISTRIBUTIONS = """
with found as materialized (
    select metric, value, label, status from run_values where experiment_id = $1
), summed as (
    select metric, count(*) filter (status = 'scored') as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as missing,
           count(*) filter (status = 'not_applicable') as not_applicable,
           min(value) filter (status = 'scored') as lowest,
           max(value) filter (status = 'scored') - min(value) filter (status = 'scored') as spread,
           count(distinct value) filter (status = 'scored') > $3 as is_binned
    from found group by metric
), counted as (
    select metric, case when value is null then label end as label,
           case when is_binned then least(floor((value - lowest) / spread * $4), $4 - 1) else value end as place,
           count(*) as n
    from found join summed using (metric) where status = 'scored' and (value is not null or label is not null)
    group by all
)
select metric, scored, missing, not_applicable, case when is_binned then lowest end,
       case when is_binned then spread / $4 end, coalesce(counts, [])
from summed left join (
    select metric, list({'place': place, 'label': label, 'n': n} order by place nulls last, n desc, label) as counts
    from counted group by metric
) using (metric)
order by coalesce(list_position($2, metric), 0), metric
"""
