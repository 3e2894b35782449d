"""Slices of examples in which a paired difference departs from that of the other examples, adjusted for every slice
that was searched.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.clusters import FloatArray

DRAWS = 2000
"""Draws of random signs."""
BLOCK = 250
"""Draws that are computed at once."""
MIN_CLUSTERS = 10
"""Fewest clusters within a slice, and outside: the signs of fewer say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceContrast:
    """The mean difference within one slice against that of all other examples."""

    metric: int  # its row in the differences
    slice: int  # its column in the members
    n: int  # examples within that have a difference
    within: float  # mean difference
    outside: float
    low: float  # simultaneous interval of within - outside
    high: float
    p_adjusted: float

    @property
    def estimate(self) -> float:
        return self.within - self.outside


def slice_contrasts(
    differences: FloatArray,
    members: NDArray[np.bool_],
    *,
    clusters: Sequence[Hashable] | None = None,
    min_examples: int = 20,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> list[SliceContrast]:
    """Return the contrast of each slice with enough examples within and outside, in the order of metrics and slices.

    For a slice s, the contrast sum_i a_is d_i has a_is = 1/n_s within and -1/(n - n_s) outside. Its distribution
    without any slice that departs is found by random signs of the residuals from the metric's mean, one sign for each
    cluster in all metrics and slices (a wild bootstrap; for two equal systems, it exchanges their labels). It is
    divided by its standard deviation under these signs, or by that of the pooled variance if this is larger: a slice in
    which nothing happened has no variance of its own. p-values and intervals hold simultaneously, by the largest
    absolute value over all slices in each draw (Westfall and Young 1993, max-T).

    Args:
        differences: Candidate minus baseline, shape (metrics, n); NaN where one is missing.
        members: Whether an example is in a slice, shape (n, slices).
        clusters: The cluster of each example; None if all are independent. An example without one (None) is its own.
        min_examples: The fewest examples within and outside. With clusters, these are of at least MIN_CLUSTERS.
        confidence_level: That of the intervals.
        seed: Of the signs.
    """
    codes, n_clusters = _codes(clusters, members.shape[0])
    weighed = [_weighed(one, members, codes, n_clusters, min_examples) for one in differences]
    largest = np.zeros(DRAWS, dtype=np.float32)
    for part in weighed:
        random = np.random.default_rng(seed)  # the same signs for each metric
        for start in range(0, DRAWS, BLOCK):
            signs = random.integers(0, 2, (min(BLOCK, DRAWS - start), n_clusters), dtype=np.int8)
            drawn = np.abs((2 * signs - 1).astype(np.float32) @ part.scaled)
            if drawn.shape[1]:
                largest[start : start + len(drawn)] = np.maximum(largest[start : start + len(drawn)], drawn.max(axis=1))
    return list(_contrasts(weighed, np.sort(largest), confidence_level))


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The slices of one metric that have enough examples."""

    slices: NDArray[np.intp]
    n: NDArray[np.intp]
    within: FloatArray
    outside: FloatArray
    deviation: FloatArray  # standard deviation of the contrast
    scaled: NDArray[np.float32]  # each cluster's part of the contrast divided by it, shape (clusters, slices)


def _codes(clusters: Sequence[Hashable] | None, n: int) -> tuple[NDArray[np.intp], int]:
    if clusters is None:
        return np.arange(n, dtype=np.intp), n
    numbers: dict[Hashable, int] = {}
    keys = [(place,) if cluster is None else cluster for place, cluster in enumerate(clusters)]
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
    return codes, len(numbers)


def _weighed(
    differences: FloatArray, members: NDArray[np.bool_], codes: NDArray[np.intp], n_clusters: int, least: int
) -> _Weighed:
    known = np.flatnonzero(~np.isnan(differences))
    values, inside, own = differences[known], members[known], codes[known]
    total, n = len(values), inside.sum(axis=0)
    is_large = (n >= least) & (total - n >= least)
    if n_clusters < len(codes):
        is_large &= [_has_clusters(own[column], own[~column]) for column in inside.T]
    chosen = np.flatnonzero(is_large)
    inside, n = inside[:, chosen], n[chosen]
    sums = values @ inside
    within, outside = sums / np.maximum(n, 1), (values.sum() - sums) / np.maximum(total - n, 1)
    residuals = values - values.mean() if total else values
    # The contrast of the residuals, by cluster: sum over its examples of a_is e_i.
    parts = np.zeros((n_clusters, len(chosen)))
    np.add.at(parts, own, np.where(inside, residuals[:, None] / n, -residuals[:, None] / (total - n)))
    loads = np.zeros((n_clusters, len(chosen)))
    np.add.at(loads, own, np.where(inside, 1 / n, -1 / (total - n)))
    own_variance = (parts**2).sum(axis=0)
    pooled = (residuals**2).sum() / max(total - 1, 1) * (loads**2).sum(axis=0) / _mean_size(own)
    deviation = np.sqrt(np.maximum(own_variance, pooled))
    scaled = np.divide(parts, deviation, out=np.zeros_like(parts), where=deviation > 0).astype(np.float32)
    return _Weighed(chosen, n, within, outside, deviation, scaled)


def _mean_size(own: NDArray[np.intp]) -> float:
    """Return the mean size of an example's cluster: 1 without clusters."""
    _, sizes = np.unique(own, return_counts=True)
    return float((sizes**2).sum() / sizes.sum()) if len(sizes) else 1.0


def _has_clusters(*sides: NDArray[np.intp]) -> bool:
    return all(len(np.unique(side)) >= MIN_CLUSTERS for side in sides)


def _contrasts(
    weighed: Sequence[_Weighed], largest: NDArray[np.float32], confidence_level: float
) -> Iterator[SliceContrast]:
    rank = int(np.ceil(confidence_level * (len(largest) + 1))) - 1
    critical = float(largest[min(rank, len(largest) - 1)])
    for metric, part in enumerate(weighed):
        for place, column in enumerate(part.slices):
            estimate, deviation = part.within[place] - part.outside[place], part.deviation[place]
            reached = len(largest) if deviation == 0 else int((largest >= abs(estimate) / deviation).sum())
            yield SliceContrast(
                metric=metric,
                slice=int(column),
                n=int(part.n[place]),
                within=float(part.within[place]),
                outside=float(part.outside[place]),
                low=float(estimate - critical * deviation),
                high=float(estimate + critical * deviation),
                p_adjusted=(1 + reached) / (1 + len(largest)),
            )
