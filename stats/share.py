"""How large a share: of answers that are yes or no, with an interval even where all agree, and with clusters."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, mean_of, refuse_where
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.distributions import clipped
from evalflows.stats.mean import cluster_wilson_interval
from evalflows.stats.proportions import wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share and its interval, as parts of 1."""

    share: float | None  # None without values
    low: float | None  # None with a reason, as is `high`
    high: float | None
    confidence_level: float  # how often such intervals cover the true share, 0 to 1
    method: str  # of the interval: "wilson" or "cluster-robust wilson"
    n: int  # values
    n_clusters: int | None  # None where no clusters were given
    reason: str | None  # why there is no interval; None if there is one


def share_estimate(
    yes: ArrayLike, clusters: Sequence[Hashable] | None = None, *, confidence_level: float = 0.95
) -> ShareEstimate:
    """The share of 1 among `yes`, shape (n,), 0 or 1 each, and a two-sided interval for it within 0 to 1.

    The score interval (Wilson 1927). With `clusters`, n hashables, it is that of an effective number of values (as
    Korn & Graubard 1998 have it for exact intervals): the share p of so many that stand alone would have the
    cluster-robust standard error that was found, p (1 - p) / se^2, but no more than n; where the clusters show no
    spread, one for each cluster. Its quantile is then that of Student's t with G - 1 degrees of freedom. A value whose
    cluster is None is alone; if all are, the interval is Wilson's own. None without values and with one cluster only.

    Raises ValueError for a value other than 0 and 1, a shape other than (n,), another number of clusters, a nan among
    them, and a level not between 0 and 1.
    """
    confidence_level, values = checked_confidence_level(confidence_level), finite_vector("yes", yes, binary=True)
    clustering = clustering_of(clusters, values.size)
    reason = _reason(values.size, clustering)
    interval = None if reason else _interval(values, clustering, confidence_level)
    return ShareEstimate(
        share=mean_of(values) if values.size else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
        method="wilson" if clustering.all_alone else "cluster-robust wilson",
        n=values.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=reason,
    )


def combined_share(parts: Sequence[ShareEstimate], weights: ArrayLike) -> ShareEstimate:
    """The weighted mean of the shares of different values, and an interval for it made of theirs.

    `weights`, one a part, are at least 0 and made to add up to 1. How far the mean may lie on each side is the root of
    the sum of squares of how far each part may, times its weight: the intervals of the parts keep their form (method of
    variance estimates recovery: Zou & Donner 2008), which for two Wilson intervals and a difference is Newcombe's
    method 10. Parts count as independent of each other. None where a part has no interval.

    Raises ValueError without parts, for another number of weights, for one below 0, and where all of them are 0.
    """
    shares = [part.share for part in parts]
    each = finite_vector("weights", weights)
    if not parts or each.size != len(parts):
        raise ValueError(f"weights: got {each.size} for {len(parts)} parts, wanted one for each of at least one part")
    refuse_where("weights", each, each < 0, "at least 0")
    if not each.any():
        raise ValueError("weights: got only 0, wanted one above it")
    reason = next((part.reason for part in parts if part.low is None or part.high is None), None)
    each = each / each.sum()
    share = None if None in shares else float(np.dot(each, np.array(shares, dtype=np.float64)))
    ends = None if reason or share is None else _recovered(parts, each, share)
    counts = [part.n_clusters for part in parts if part.n_clusters is not None]
    return ShareEstimate(
        share=share,
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        confidence_level=parts[0].confidence_level,
        method=f"{parts[0].method}, combined",
        n=sum(part.n for part in parts),
        n_clusters=sum(counts) if counts else None,
        reason=reason,
    )


def _recovered(parts: Sequence[ShareEstimate], weights: FloatArray, share: float) -> tuple[float, float]:
    """The interval of a weighted mean, from those of its parts."""
    shares, lows, highs = (np.array([getattr(part, name) for part in parts]) for name in ("share", "low", "high"))
    down, up = (float(np.linalg.norm(weights * far)) for far in (shares - lows, highs - shares))
    return clipped((share - down, share + up), 0.0, 1.0)


def _reason(n: int, clustering: Clustering) -> str | None:
    if not n:
        return "no values: an interval needs at least 1"
    return None if clustering.all_alone else too_few(n, clustering, "value")


def _interval(values: FloatArray, clustering: Clustering, confidence_level: float) -> tuple[float, float]:
    if clustering.all_alone:
        return wilson_interval(int(values.sum()), values.size, confidence_level=confidence_level)
    return cluster_wilson_interval(values, clustering, confidence_level=confidence_level)
