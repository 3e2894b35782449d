"""Slices of examples in which a paired difference departs from that of the other examples, adjusted for every slice
that was searched."""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray

DRAWS = 2000
"""Draws of random signs. Each counts as it is, and with all its signs turned."""
BLOCK = 250
"""Draws, or slices, that are computed at once."""
MIN_CLUSTERS = 10
"""Fewest clusters within a slice, and outside: the signs of fewer say little."""
OF_LOSSES = 0.8
"""Share of the error rate for losses; the rest is for gains."""
OF_FIRST = 0.8
"""Share of the error rate for the first slices; the rest is for the others, if there are some."""


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
    n_first: int | None = None,
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
    which nothing happened has no variance of its own.

    p-values and intervals hold simultaneously: by the largest value over all slices in each draw (Westfall and Young
    1993, max-T), apart for the first slices and the others, and for losses and gains, which share the error rate by
    OF_FIRST and OF_LOSSES (weighted Bonferroni). So the search of many more slices costs the first ones little.

    Args:
        differences: Candidate minus baseline, shape (metrics, n), higher is better; NaN where one is missing.
        members: Whether an example is in a slice, shape (n, slices).
        n_first: How many slices are the first, such as those of a single field. None: all.
        clusters: The cluster of each example; None if all are independent. An example without one (None) is its own.
        min_examples: The fewest examples within and outside. With clusters, these are of at least MIN_CLUSTERS.
        confidence_level: That of the intervals.
        seed: Of the signs.
    """
    codes, n_clusters = _codes(clusters, members.shape[0])
    weighed = [_weighed(row, members, codes, n_clusters, min_examples) for row in differences]
    n_first = members.shape[1] if n_first is None else n_first
    largest = np.zeros((2, 2, DRAWS), dtype=np.float32)  # of the first slices and the others, of both signs
    random, searched = np.random.default_rng(seed), [table for table in weighed if table.slices.size]
    for start in range(0, DRAWS if searched else 0, BLOCK):
        block = slice(start, min(start + BLOCK, DRAWS))
        drawn_bytes = np.frombuffer(random.bytes((block.stop - start) * n_clusters), np.uint8)
        drawn_signs = 2 * (drawn_bytes >> 7).view(np.int8) - 1  # as `integers` draws them, in a quarter of the time
        signs = drawn_signs.astype(np.float32).reshape(-1, n_clusters)  # the same for each metric
        for table in searched:
            drawn, is_first = signs @ table.scaled, table.slices < n_first
            for family, of_family in enumerate((is_first, ~is_first)):
                if of_family.any():
                    ends = np.array([drawn[:, of_family].max(axis=1), -drawn[:, of_family].min(axis=1)])
                    largest[family, :, block] = np.maximum(largest[family, :, block], ends)
    shares = (1.0, 0.0) if n_first == members.shape[1] else (OF_FIRST, 1 - OF_FIRST)
    families = [_Family(np.sort(of.ravel()), share) for of, share in zip(largest, shares, strict=True)]
    return list(_contrasts(weighed, families, n_first, 1 - confidence_level))


@dataclass(frozen=True, slots=True)
class _Family:
    """Slices that are adjusted together."""

    largest: NDArray[np.float32]  # the largest value over them in each draw, ascending
    share: float  # of the error rate

    def p_adjusted(self, value: float, share: float) -> float:
        """Return the chance of a value this large, over this share of the family's."""
        reached = len(self.largest) - int(np.searchsorted(self.largest, value))
        return min((1 + reached) / (1 + len(self.largest)) / (self.share * share), 1.0)

    def critical(self, alpha: float, share: float) -> float:
        """Return the value from which `p_adjusted` is at most alpha; inf if none is."""
        reached = int(alpha * self.share * share * (1 + len(self.largest)) + 1e-9) - 1
        return float(self.largest[len(self.largest) - 1 - reached]) if reached >= 0 else float("inf")


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
    keys = [(index,) if cluster is None else cluster for index, cluster in enumerate(clusters)]
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
    pooled = (residuals**2).sum() / max(total - 1, 1) / _mean_size(own)
    deviation, scaled = np.zeros(len(chosen)), np.zeros((n_clusters, len(chosen)), dtype=np.float32)
    for start in range(0, len(chosen), BLOCK):
        block = slice(start, start + BLOCK)
        loads = np.where(inside[:, block], 1 / n[block], -1 / (total - n[block]))
        parts = _by_cluster(loads * residuals[:, None], own, n_clusters)  # of the contrast of the residuals
        variance = (_by_cluster(loads, own, n_clusters) ** 2).sum(axis=0)
        deviation[block] = of = np.sqrt(np.maximum((parts**2).sum(axis=0), pooled * variance))
        scaled[:, block] = np.divide(parts, of, out=np.zeros_like(parts), where=of > 0)
    return _Weighed(chosen, n, within, outside, deviation, scaled)


def _by_cluster(values: FloatArray, own: NDArray[np.intp], n_clusters: int) -> FloatArray:
    """Return the sum over the examples of each cluster, shape (clusters, slices)."""
    sums = np.zeros((n_clusters, values.shape[1]))
    np.add.at(sums, own, values)
    return sums


def _mean_size(own: NDArray[np.intp]) -> float:
    """Return the mean size of an example's cluster: 1 without clusters."""
    _, sizes = np.unique(own, return_counts=True)
    return float((sizes**2).sum() / sizes.sum()) if len(sizes) else 1.0


def _has_clusters(*sides: NDArray[np.intp]) -> bool:
    return all(len(np.unique(side)) >= MIN_CLUSTERS for side in sides)


def _contrasts(
    weighed: Sequence[_Weighed], families: Sequence[_Family], n_first: int, alpha: float
) -> Iterator[SliceContrast]:
    of_loss, of_gain = OF_LOSSES, 1 - OF_LOSSES
    bounds = [(of.critical(alpha, of_loss), of.critical(alpha, of_gain)) for of in families]
    for metric, table in enumerate(weighed):
        for index, column in enumerate(table.slices):
            estimate, deviation = float(table.within[index] - table.outside[index]), float(table.deviation[index])
            number = int(column >= n_first)
            of_losses, of_gains = bounds[number]
            value = abs(estimate) / deviation if deviation else 0.0
            yield SliceContrast(
                metric=metric,
                slice=int(column),
                n=int(table.n[index]),
                within=float(table.within[index]),
                outside=float(table.outside[index]),
                low=estimate - of_gains * deviation if deviation else estimate,
                high=estimate + of_losses * deviation if deviation else estimate,
                p_adjusted=families[number].p_adjusted(value, of_loss if estimate < 0 else of_gain),
            )
