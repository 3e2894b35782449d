"""Shares of labels in production by day, such as topics of traces."""

from collections.abc import Sequence
from datetime import datetime

from evalflows.analysis.figures import percent_estimate
from evalflows.specs.frozen import dataclass
from evalflows.stats.proportions import normal_quantile, score_interval
from evalflows.store.sql import ask
from evalflows.store.store import Store

MOST_DAYS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedShare:
    """How many items of production have something, as a share in which samples are weighted by the inverse sampling
    rate."""

    n_with: int
    n: int
    share: float
    low: float  # 95 % interval (Wilson 1927), of as many items as have the same precision if they were weighted alike
    high: float

    @property
    def in_percent(self) -> tuple[str, str]:
        """The share and its interval as texts."""
        return percent_estimate(self.share, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelShare(WeightedShare):
    """The share of a label among the labels that a metric gave on a day."""

    metric: str
    label: str
    day: datetime  # its begin, UTC


def interval_of(share: float, effective: float) -> dict[str, float]:
    """Return a weighted share and the ends of its interval by the names of their fields; `effective` is the number of
    items of the same precision."""
    low, high = score_interval(share, effective, normal_quantile(0.95))
    return {"share": share, "low": low, "high": high}


def label_shares(store: Store) -> Sequence[LabelShare]:
    """Return the shares on each metric's newest MOST_DAYS days, by metric, label (the most frequent first) and day; 0
    of a label that a day lacks."""
    (rows,) = ask(store, (_SHARES, [MOST_DAYS]))
    return [
        LabelShare(metric=metric, label=label, day=day, n_with=n_with, n=n, **interval_of(share, effective))
        for metric, label, day, n_with, n, share, effective in rows
    ]


_SHARES = """
with given as (
    select metric, label, date_trunc('day', subject_at at time zone 'UTC') at time zone 'UTC' as day,
           1 / coalesce(sampling_rate, 1.0) as weight
    from staging.scores
    where subject_kind in ('trace', 'observation', 'session') and status = 'scored' and label is not null
      and turn is null and subject_at is not null
), days as (
    select metric, day, count(*) as n, sum(weight) as total, sum(weight) ** 2 / sum(weight ** 2) as effective
    from given group by metric, day
    qualify row_number() over (partition by metric order by day desc) <= $1
), labels as (
    select metric, label, count(*) as n from given semi join days using (metric, day) group by all
)
select l.metric, l.label, d.day, count(g.label), d.n, coalesce(sum(g.weight), 0) / d.total, d.effective
from labels l join days d using (metric)
left join given g on g.metric = l.metric and g.label = l.label and g.day = d.day
group by l.metric, l.label, l.n, d.day, d.n, d.total, d.effective
order by l.metric, l.n desc, l.label, d.day
"""
