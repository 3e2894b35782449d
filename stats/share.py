"""The share of yes among yes/no values, with an interval that also exists if all values are equal; with clusters."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, mean_of, refuse_where
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.distributions import clipped
from evalflows.stats.mean import cluster_wilson_interval, share_standard_error
from evalflows.stats.proportions import wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share and its interval, 0 to 1."""

    share: float | None  # None without values
    low: float | None  # None with a reason, like `high`
    high: float | None
    confidence_level: float  # of the interval, between 0 and 1
    method: str  # of the interval: "wilson" or "cluster-robust wilson", with ", combined" for a combined share
    n: int  # number of values
    n_clusters: int | None  # None if no clusters were given
    reason: str | None  # why there is no interval; None if there is one
    standard_error: float | None = None  # None without an interval


def share_estimate(
    yes: ArrayLike, clusters: Sequence[Hashable] | None = None, *, confidence_level: float = 0.95
) -> ShareEstimate:
    """Return the share of 1 in `yes`, shape (n,), each 0 or 1, with a two-sided interval within 0 to 1.

    The interval is the score interval (Wilson 1927). With `clusters`, n hashables, it is `cluster_wilson_interval`:
    Wilson's interval for an effective sample size (Korn & Graubard 1998, for exact intervals) with a quantile of
    Student's t. A value with cluster None is its own cluster; if all are, the interval without clusters is used. There
    is no interval without values, or if several values are all in one cluster.

    Raise ValueError for a value other than 0 and 1, a shape other than (n,), another number of clusters, a nan among
    them, and a confidence level not between 0 and 1.
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
        method="wilson" if clustering.all_singletons else "cluster-robust wilson",
        n=values.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=reason,
        standard_error=None if reason else share_standard_error(values, clustering),
    )


def combined_share(parts: Sequence[ShareEstimate], weights: ArrayLike) -> ShareEstimate:
    """Return the weighted mean of independent shares, with an interval that combines their intervals.

    `weights`, one per part, are at least 0, and are scaled to add up to 1. On each side, the distance from the mean to
    the end of the interval is the root of the sum of squares of the parts' distances times their weights (method of
    variance estimates recovery: Zou & Donner 2008); for a difference of two Wilson intervals this is Newcombe's method
    10. There is no interval if a part has none.

    Raise ValueError without parts, for another number of weights, for a weight below 0, and if all weights are 0.
    """
    shares = [part.share for part in parts]
    part_weights = finite_vector("weights", weights)
    if not parts or part_weights.size != len(parts):
        raise ValueError(f"weights: got {part_weights.size} for {len(parts)} parts, wanted one per part, at least one")
    refuse_where("weights", part_weights, part_weights < 0, "at least 0")
    if not part_weights.any():
        raise ValueError("weights: got only 0, wanted at least one above 0")
    reason = next((part.reason for part in parts if part.low is None or part.high is None), None)
    part_weights = part_weights / part_weights.sum()
    share = None if None in shares else float(np.dot(part_weights, np.array(shares, dtype=np.float64)))
    ends = None if reason or share is None else _recovered(parts, part_weights, share)
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
        standard_error=None if ends is None else _combined_error(parts, part_weights),
    )


def _combined_error(parts: Sequence[ShareEstimate], weights: FloatArray) -> float:
    errors = np.array([part.standard_error for part in parts], dtype=np.float64)
    return float(np.linalg.norm(weights * errors))


def _recovered(parts: Sequence[ShareEstimate], weights: FloatArray, share: float) -> tuple[float, float]:
    """The interval of a weighted mean, from the intervals of its parts."""
    shares, lows, highs = (np.array([getattr(part, name) for part in parts]) for name in ("share", "low", "high"))
    down, up = (float(np.linalg.norm(weights * distances)) for distances in (shares - lows, highs - shares))
    return clipped((share - down, share + up), 0.0, 1.0)


def _reason(n: int, clustering: Clustering) -> str | None:
    if not n:
        return "no values: an interval needs at least 1"
    return None if clustering.all_singletons else too_few(n, clustering, "value")


def _interval(values: FloatArray, clustering: Clustering, confidence_level: float) -> tuple[float, float]:
    if clustering.all_singletons:
        return wilson_interval(int(values.sum()), values.size, confidence_level=confidence_level)
    return cluster_wilson_interval(values, clustering, confidence_level=confidence_level)
