"""Which examples stand or fall together, and how sure a mean is because of it."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray

ROUNDING = 1e-12
"""Deviations up to this part of the numbers they were reckoned from are rounding: 0.3 - 0.2 is not 0.4 - 0.3."""


FEWEST_CLUSTERS = 10
"""With fewer, intervals may hold the truth less often than they say: by simulation (1,500 runs; geometric sizes around
4; long-tailed values, or differences of yes and no) 95 % by t are 93 to 95 % with 4 to 10 clusters, and tests err in up
to 7 %."""


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


def degrees_of_freedom(values: FloatArray, clustering: Clustering) -> float:
    """How many Student's t needs for the mean of `values`, shape (n,), with `standard_error`; at least 2 clusters.

    Those of Satterthwaite (Bell & McCaffrey 2002) for CR1, the values being as alike within clusters as they are found
    to be (Imbens & Kolesar 2016, section 3): G - 1 where all clusters are of one size, fewer where some are larger. By
    simulation (30 clusters whose sizes are geometric around 7, normal values and differences of yes and no, 4,000 runs
    each), tests at 5 % with G - 1 err in 6.6 to 7.6 %, with these in 4.5 to 5.3 %; sizes of 1 to 10: 5.2 to 6.2 % and
    4.6 to 5.6 %. CR2 instead of CR1 changes this by less than 0.6 %.
    """
    count, sizes = clustering.count, np.bincount(clustering.numbers, minlength=clustering.count)
    if sizes.min() == sizes.max():
        return float(count - 1)
    alike = intraclass_correlation(values, clustering)
    parts = sizes / sizes.sum()
    # Of the sums s of the clusters: s - parts * sum(s) is what CR1 squares. Its covariance is diag(spread) + rest, with
    # rest = total * outer(parts, parts) - outer(spread, parts) - outer(parts, spread), so that no G x G is needed.
    spread = parts * (1 - alike + alike * sizes)
    total, crossed, squared = float(spread.sum()), float(spread @ parts), float(parts @ parts)
    rest = total * parts**2 - 2 * spread * parts
    of_rest = (
        2 * float(spread @ spread) * squared + 2 * crossed**2 + total**2 * squared**2 - 4 * total * crossed * squared
    )
    trace = float(np.sum(spread + rest))
    return trace**2 / (float(spread @ spread) + 2 * float(spread @ rest) + of_rest)


def with_two_more(values: FloatArray, clustering: Clustering, low: float, high: float) -> tuple[FloatArray, Clustering]:
    """The same, shape (..., n), and two clusters of average size more: one `low` throughout, one `high`.

    Where what is rare was hardly seen, clusters look more alike than they are, and the error too small. What is added
    keeps it from that, as the counts do that Agresti & Coull (1998) add to a share.
    """
    size = max(1, round(clustering.numbers.size / clustering.count))
    more = np.repeat([low, high], size)
    numbers = np.repeat([clustering.count, clustering.count + 1], size)
    return (
        np.concatenate([values, np.broadcast_to(more, (*values.shape[:-1], more.size))], axis=-1),
        Clustering(numbers=np.concatenate([clustering.numbers, numbers]), count=clustering.count + 2),
    )


def intraclass_correlation(values: FloatArray, clustering: Clustering) -> float:
    """How alike values of one cluster are, 0 to 1: from the mean squares between and within (Donner 1986, eq. 2.1).

    Shape (n,), at least 2 clusters of which one holds more than one value. Below 0 counts as 0.
    """
    numbers, count, n = clustering.numbers, clustering.count, values.size
    sizes = np.bincount(numbers, minlength=count)
    deviations = values - values.mean()
    largest = float(np.abs(deviations).max())
    if not largest:
        return 0.0
    deviations = deviations / largest  # so that squares are floats
    means = np.bincount(numbers, weights=deviations, minlength=count) / sizes
    within = float(np.sum((deviations - means[numbers]) ** 2)) / (n - count)
    between = float(np.sum(sizes * means**2)) / (count - 1)
    size = (n - float(np.sum(sizes**2)) / n) / (count - 1)
    return max(0.0, (between - within) / (between + (size - 1) * within))


def few_clusters(clustering: Clustering) -> str | None:
    """What to say of an interval from fewer than FEWEST_CLUSTERS; None with more, or where every example is alone."""
    if clustering.all_alone or clustering.count >= FEWEST_CLUSTERS:
        return None
    return f"{clustering.count} clusters: intervals from fewer than {FEWEST_CLUSTERS} may cover less than they say"


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
