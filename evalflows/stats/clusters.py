"""Clusters of dependent examples: cluster-robust standard errors and degrees of freedom."""

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import ROUNDING, FloatArray, is_rounding

MIN_CLUSTERS = 10
"""With fewer clusters, intervals may cover less often than stated: in simulations (1,500 runs; geometric sizes near 4;
long-tailed values), 95 % t intervals cover 93 to 95 % with 4 to 10 clusters, and tests reject falsely in up to 7 %. Of
yes/no values (1,000 runs), intervals cover 97 to 100 %, and tests reject in at most 3 %."""

DOMINATING = 0.25
"""Share of the values from which one cluster dominates: CR2 and the degrees of freedom of independent values then
replace CR1 and those of the estimated correlation, which is hardly known. In simulations (600 runs; normal values, 10
and 30 clusters, one of 30 or 60 %, correlation 0 to 0.3), 95 % intervals cover in 95 to 98 %; those of CR1 cover in 90
to 99.7 %, and are up to 1.7 times as wide on average."""


NoInterval = Literal["too_few", "no_spread"]
"""Why there is no interval; `too_few` and `no_spread` give the reason as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """A partition of n examples."""

    numbers: NDArray[np.intp]  # shape (n,): the cluster of each example, numbered from 0
    count: int  # number of clusters

    @property
    def all_singletons(self) -> bool:
        """Whether every example is its own cluster, as when no clusters are given."""
        return self.count == self.numbers.size


def clustering_of(clusters: Sequence[Hashable] | None, n: int) -> Clustering:
    """Return the clustering of n examples. None for `clusters`, or in it, means a cluster of its own.

    Raise ValueError if `clusters` is not of length n or contains a nan: whether two nans are equal depends on their
    origin.
    """
    if clusters is None:
        return Clustering(numbers=np.arange(n), count=n)
    if len(clusters) != n:
        raise ValueError(f"clusters: got {len(clusters)}, wanted one for each of {n} examples")
    for index, cluster in enumerate(clusters):
        if cluster != cluster:
            raise ValueError(f"clusters[{index}]: got {cluster!r}, wanted None for an example without a cluster")
    keys = [object() if cluster is None else cluster for cluster in clusters]
    seen: dict[Hashable, int] = {}
    numbers = [seen.setdefault(key, len(seen)) for key in keys]
    return Clustering(numbers=np.array(numbers, dtype=np.intp), count=len(seen))


def cluster_sums(values: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the sums of `values`, shape (..., n), by cluster, shape (..., G)."""
    if clustering.all_singletons:
        return values
    rows = values.reshape(-1, values.shape[-1])
    numbers = clustering.numbers + clustering.count * np.arange(len(rows))[:, None]
    sums = np.bincount(numbers.ravel(), weights=rows.ravel(), minlength=len(rows) * clustering.count)
    return np.asarray(sums.reshape(*values.shape[:-1], clustering.count), dtype=np.float64)


def corrections(clustering: Clustering) -> FloatArray:
    """Return what the squares of the clusters' sums are multiplied by, shape (G,), so that they are not too small.

    G / (G - 1) (CR1; Cameron & Miller 2015), or 1 / (1 - share of the values) if a cluster dominates: that is CR2 of a
    mean (Bell & McCaffrey 2002), which for clusters of equal size is the same.
    """
    parts = _parts(clustering)
    if parts.max() < DOMINATING:
        return np.full(clustering.count, clustering.count / (clustering.count - 1))
    return np.asarray(1 / (1 - parts))


def _parts(clustering: Clustering) -> FloatArray:
    sizes = np.bincount(clustering.numbers, minlength=clustering.count).astype(np.float64)
    return np.asarray(sizes / sizes.sum())


def standard_error(values: FloatArray, clustering: Clustering, *, scale: float | FloatArray) -> FloatArray:
    """Return the cluster-robust standard errors of the means of `values`, shape (..., n), in their unit.

    Needs at least 2 examples and 2 clusters. It is that of a regression on a constant with clustered errors and the
    correction of `corrections` (Cameron & Miller 2015, section II; Miller 2024, section 2.2, without one).

    If every example is its own cluster, it is the usual s / sqrt(n). It is 0.0 where the
    cluster means differ only by rounding; `scale` is the size of the numbers the values were computed from.
    """
    count = clustering.count
    sums = np.abs(cluster_sums(values - values.mean(axis=-1, keepdims=True), clustering))
    deviations = sums / np.bincount(clustering.numbers, minlength=count)
    constant = deviations.max(axis=-1) <= ROUNDING * scale
    # Scale by the largest: the squares of very large or very small numbers would overflow or underflow.
    largest = sums.max(axis=-1)
    squares = corrections(clustering) * (sums / np.where(largest == 0, 1.0, largest)[..., None]) ** 2
    return np.where(constant, 0.0, largest * np.sqrt(squares.sum(axis=-1)) / values.shape[-1])


def degrees_of_freedom(values: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the degrees of freedom of Student's t for the means of `values`, shape (..., n), with `standard_error`.

    Needs at least 2 clusters. Satterthwaite's degrees of freedom (Bell & McCaffrey 2002) for CR1, with the estimated
    intraclass correlation (Imbens & Kolesar 2016, section 3): G - 1 if all clusters have the same size, fewer if some
    are larger. In simulations (30 clusters with sizes geometric around 7, normal values and differences of yes and no,
    4,000 runs each), tests at 5 % reject falsely in 6.6 to 7.6 % with G - 1, and in 4.5 to 5.3 % with these; for sizes
    of 1 to 10, 5.2 to 6.2 % and 4.6 to 5.6 %. CR2 instead of CR1 changes this by less than 0.6 %. If a cluster
    dominates (`DOMINATING`), they are those of CR2 for independent values (Bell & McCaffrey 2002).
    """
    count, sizes = clustering.count, np.bincount(clustering.numbers, minlength=clustering.count)
    if sizes.min() == sizes.max():
        return np.full(values.shape[:-1], count - 1.0)
    parts = sizes / sizes.sum()
    if parts.max() >= DOMINATING:
        squares = (parts / (1 - parts)) ** 2 * (1 - 2 * parts)
        return np.full(values.shape[:-1], 1 / (squares.sum() + (parts**2 / (1 - parts)).sum() ** 2))
    icc = intraclass_correlation(values, clustering)[..., None]
    # CR1 squares s - parts * sum(s), where s are the cluster sums. The covariance of that is diag(spread) + rest, with
    # rest = total * outer(parts, parts) - outer(spread, parts) - outer(parts, spread), so no G x G matrix is needed.
    spread = parts * (1 - icc + icc * sizes)
    total, crossed, squared = spread.sum(axis=-1), (spread * parts).sum(axis=-1), float(parts @ parts)
    rest, own = total[..., None] * parts**2 - 2 * spread * parts, (spread**2).sum(axis=-1)
    of_rest = 2 * own * squared + 2 * crossed**2 + total**2 * squared**2 - 4 * total * crossed * squared
    trace = (spread + rest).sum(axis=-1)
    return np.asarray(trace**2 / (own + 2 * (spread * rest).sum(axis=-1) + of_rest))


def intraclass_correlation(values: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the intraclass correlations, 0 to 1: from the mean squares between and within (Donner 1986, eq. 2.1).

    `values` have shape (..., n), with at least 2 clusters, one of them with more than one value. Negative estimates are
    set to 0.
    """
    count, n = clustering.count, values.shape[-1]
    sizes = np.bincount(clustering.numbers, minlength=count)
    deviations = values - values.mean(axis=-1, keepdims=True)
    largest = np.abs(deviations).max(axis=-1)
    deviations = deviations / np.where(largest == 0, 1.0, largest)[..., None]  # so that squares do not overflow
    means = cluster_sums(deviations, clustering) / sizes
    within = ((deviations - means[..., clustering.numbers]) ** 2).sum(axis=-1) / (n - count)
    between = (sizes * means**2).sum(axis=-1) / (count - 1)
    size = (n - float(np.sum(sizes**2)) / n) / (count - 1)
    both = between + (size - 1) * within
    return np.where(largest == 0, 0.0, np.maximum(0.0, (between - within) / np.where(both == 0, 1.0, both)))


def few_clusters(clustering: Clustering) -> str | None:
    """Return a warning for intervals from fewer than MIN_CLUSTERS; None with more, or without clusters."""
    if clustering.all_singletons or clustering.count >= MIN_CLUSTERS:
        return None
    return f"{clustering.count} clusters: intervals from fewer than {MIN_CLUSTERS} may cover less often than stated"


def too_few(n: int, clustering: Clustering, noun: str) -> str | None:
    """Return why n examples (each a `noun`) are too few for an interval; None if they are enough."""
    if n < 2:
        return f"{n or 'no'} {noun}{'' if n == 1 else 's'}: an interval needs at least 2"
    if clustering.count < 2:
        return f"all {n} {noun}s are in one cluster: an interval needs at least 2 clusters"
    return None


def no_spread(values: FloatArray, clustering: Clustering, noun: str, *, scale: float) -> str:
    """Return why the standard error is 0: all values (each a `noun`) are equal, or all cluster means are."""
    what = f"the mean {noun} of all {clustering.count} clusters is the same"
    if clustering.all_singletons or is_rounding(np.ptp(values), scale):
        what = f"all {values.size} {noun}s are equal"
    return f"{what}: no variation to compute an interval from, and no range is declared"
