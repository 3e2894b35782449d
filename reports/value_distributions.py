"""How the values of each metric of an experiment are distributed over its runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.reports.figures import figure
from evalflows.specs.metric_names import MEASURES
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

MOST_VALUES = 10
"""A metric with more different values is counted in BINS intervals of equal width."""

BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often each value, interval of values or label occurs among the scored runs."""

    metric: str
    counts: Sequence[tuple[str, int]]  # in order of the values; labels by frequency
    scored: int
    missing: int
    not_applicable: int


def distributions(store: Store, experiment: str) -> list[Distribution]:
    """Return the distribution of each metric, measures last. Metrics without a scored run have no counts."""
    totals, values, bins, labels = ask(
        store,
        (_TOTALS, [experiment, [*MEASURES]]),
        (f"{_NUMBERS} {_EACH}", [experiment, MOST_VALUES]),
        (f"{_NUMBERS} {_BINNED}", [experiment, MOST_VALUES, BINS]),
        (_LABELS, [experiment]),
    )
    counts: dict[str, list[tuple[str, int]]] = {}
    for metric, value, count in values:
        counts.setdefault(metric, []).append((f"{value:.4g}", count))
    for metric, lowest, width, found in bins:
        counts[metric] = [
            (
                f"{figure(lowest + place * width, metric)} to {figure(lowest + (place + 1) * width, metric)}",
                found.get(place, 0),
            )
            for place in range(BINS)
        ]
    for metric, label, count in labels:
        counts.setdefault(metric, []).append((label, count))
    return [
        Distribution(metric=metric, counts=counts.get(metric, []), scored=scored, missing=missing, not_applicable=na)
        for metric, scored, missing, na in totals
    ]


_TOTALS = """
select metric, count(*) filter (status = 'scored'), count(*) filter (status in ('failed', 'not_attempted')),
       count(*) filter (status = 'not_applicable')
from run_values where experiment_id = $1
group by metric order by coalesce(list_position($2, metric), 0), metric
"""

_NUMBERS = """
with numbers as (
    select metric, value from run_values where experiment_id = $1 and status = 'scored' and value is not null
), ranges as (
    select metric, min(value) as lowest, (max(value) - min(value)) as spread, count(distinct value) > $2 as is_binned
    from numbers group by metric
)
"""

_EACH = """
select metric, value, count(*) from numbers join ranges using (metric)
where not is_binned group by metric, value order by metric, value
"""

_BINNED = """
, placed as (
    select metric, lowest, spread / $3 as width, least(floor((value - lowest) / spread * $3), $3 - 1)::int as place,
           count(*) as n
    from numbers join ranges using (metric) where is_binned group by all
)
select metric, lowest, width, map(list(place), list(n)) from placed group by metric, lowest, width order by metric
"""

_LABELS = """
select metric, label, count(*) as n from run_values
where experiment_id = $1 and status = 'scored' and value is null and label is not null
group by metric, label order by metric, n desc, label
"""
