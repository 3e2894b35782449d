"""Which examples stand or fall together, and how sure a mean is because of it."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray

ROUNDING = 1e-12
"""Deviations up to this part of the numbers they were reckoned from are rounding: 0.3 - 0.2 is not 0.4 - 0.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """A partition of n examples."""

    numbers: NDArray[np.intp]  # shape (n,): the cluster of each example, counted from 0
    count: int  # how many clusters

    @property
    def all_alone(self) -> bool:
        """Whether each example is a cluster of its own, as it is where no clusters are given."""
        return self.count == self.numbers.size


def clustering_of(clusters: Sequence[Hashable] | None, n: int) -> Clustering:
    """Who is with whom among n examples. None for `clusters`, or in it, means alone.

    Raises ValueError where `clusters` is not of length n, or has a nan in it: whether two of those are one cluster
    would depend on where they came from.
    """
    if clusters is None:
        return Clustering(numbers=np.arange(n), count=n)
    if len(clusters) != n:
        raise ValueError(f"clusters: got {len(clusters)}, wanted one for each of {n} examples")
    for place, cluster in enumerate(clusters):
        if cluster != cluster:
            raise ValueError(f"clusters[{place}]: got {cluster!r}, wanted None where an example is alone")
    keys = [object() if cluster is None else cluster for cluster in clusters]
    seen: dict[Hashable, int] = {}
    numbers = [seen.setdefault(key, len(seen)) for key in keys]
    return Clustering(numbers=np.array(numbers, dtype=np.intp), count=len(seen))


def is_rounding(size: float, scale: float) -> bool:
    """Whether a difference of that size, between numbers reckoned from numbers of size `scale`, counts as none."""
    return bool(size <= ROUNDING * scale)


def standard_error(values: FloatArray, clustering: Clustering, *, scale: float) -> float:
    """The standard error of the mean of `values`, shape (n,), n and clusters at least 2, in the unit of `values`.

    That of a regression on a constant with clustered errors and the correction G / (G - 1), which here is all of CR1
    (Cameron & Miller 2015, section II; Miller 2024, section 2.2, without the correction). Where every example is
    alone, it is the usual s / sqrt(n). 0.0 where the means of the clusters differ by rounding only, the values having
    been reckoned from numbers of size `scale`.
    """
    numbers, count = clustering.numbers, clustering.count
    sums = np.bincount(numbers, weights=values - values.mean(), minlength=count)
    deviations = np.abs(sums) / np.bincount(numbers, minlength=count)
    if is_rounding(deviations.max(), scale):
        return 0.0
    # Squares relative to the largest: those of very large and very small numbers would not be floats.
    largest = float(np.abs(sums).max())
    squares = float(np.sum((sums / largest) ** 2))
    return largest * math.sqrt(squares * count / (count - 1)) / values.size


def too_few(n: int, clustering: Clustering, noun: str) -> str | None:
    """Why n examples, each called `noun`, do not show how much they vary; None if they do."""
    if n < 2:
        return f"{n or 'no'} {noun}{'' if n == 1 else 's'}: an interval needs at least 2"
    if clustering.count < 2:
        return f"all {n} {noun}s are in one cluster: an interval needs at least 2 clusters"
    return None


def no_spread(values: FloatArray, clustering: Clustering, noun: str, *, scale: float) -> str:
    """Why the standard error is 0: the values, each called `noun`, are all equal, or the clusters' means are."""
    if clustering.all_alone or is_rounding(np.ptp(values), scale):
        return f"all {values.size} {noun}s are equal: no spread to reckon an interval from"
    return f"the mean {noun} of all {clustering.count} clusters is the same: no spread to reckon an interval from"
