"""Paired yes/no values in clusters: against weighted matrices, Tango's score test, and the unclustered methods."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.paired import PairedDifference, paired_difference


def pairs(rng: np.random.Generator, sizes: Sequence[int], differ: float) -> tuple[Any, Any, list[int]]:
    """Return candidate, baseline and clusters; clusters have different shares of gained and lost pairs."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    shares = rng.dirichlet([differ * 3, differ * 4, 3], len(sizes))[clusters]
    kind = rng.random(clusters.size)
    gained, lost = kind < shares[:, 0], kind > 1 - shares[:, 1]
    return (gained | ~lost).astype(float), (~gained | lost).astype(float), clusters.tolist()


def score_p(gained: float, lost: float, n: float, difference: float, df: float, t_probability: Any) -> float:
    """Return the p-value of a true difference, with the nuisance parameter found by maximising the likelihood."""
    shares = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200_001)[1:-1]  # of pairs lost
    with np.errstate(divide="ignore", invalid="ignore"):
        log = gained * np.log(shares + difference) + lost * np.log(shares)
        log = log + (n - gained - lost) * np.log(1 - 2 * shares - difference)
    best = shares[np.nanargmax(log)]
    variance = n * (2 * best + difference - difference**2)
    return 1 - float(t_probability((gained - lost - n * difference) / math.sqrt(variance), df))


@pytest.mark.parametrize("sizes", [[10] * 12, [1, 2, 30, 3, 9, 9, 17, 5, 30, 8, 12, 4, 2], [1] * 30 + [2]])
def test_the_interval_is_the_union_of_two_and_p_the_larger_of_two(
    sizes: list[int], t_bisected: Callable[[Any, Any], Any], t_probability: Any, two_added: Callable[..., Any]
) -> None:
    rng, by_wald = np.random.default_rng(31), 0
    for _ in range(6):
        candidate, baseline, clusters = pairs(rng, sizes, 0.3)
        differences = candidate - baseline
        found = two_added(differences, clusters, (-1.0, 1.0), 7.0, 0.6)
        df = degrees_of_freedom(differences, clustering_of(clusters, differences.size))
        half = float(t_bisected(0.95, df)) * found.error
        estimate = paired_difference(candidate, baseline, clusters, binary=True)
        assert estimate.standard_error == pytest.approx(found.error, rel=1e-9)
        assert estimate.low is not None and estimate.high is not None
        gained, lost = np.sum(differences > 0), np.sum(differences < 0)
        counts = [count / found.design_effect for count in (gained, lost, differences.size)]
        ends = (estimate.low, found.mean - half), (estimate.high, found.mean + half)
        for end, wald in ends:
            is_wald = end == pytest.approx(wald, abs=1e-7)
            p = score_p(*counts, end, df, t_probability)
            assert is_wald or p == pytest.approx(0.05, abs=2e-4)
            by_wald += is_wald
        assert estimate.low <= found.mean - half + 1e-7 and estimate.high >= found.mean + half - 1e-7
        of_wald = 1 - float(t_probability(found.mean / found.error, df))
        at_zero = score_p(*counts, 0.0, df, t_probability)
        assert estimate.p_value == pytest.approx(max(of_wald, at_zero), abs=2e-4)
    assert 0 < by_wald < 12


def width(estimate: PairedDifference) -> float:
    assert estimate.low is not None and estimate.high is not None
    return estimate.high - estimate.low


def test_the_size_of_independent_clusters_does_not_matter() -> None:
    """48 clusters of 220 that are alike have an interval like that without clusters, or of the same numbers."""
    rng = np.random.default_rng(34)
    kind = rng.random(10_560)
    candidate, baseline = (kind < 0.05) | (kind > 0.14), (kind > 0.05)
    clusters = np.repeat(np.arange(48), 220).tolist()
    estimate, alone = (paired_difference(candidate, baseline, c, binary=True) for c in (clusters, None))
    as_numbers = paired_difference(candidate, baseline, clusters)
    assert 0.8 < width(estimate) / width(alone) < 1.25
    assert width(estimate) / width(as_numbers) == pytest.approx(1, abs=0.05)
    assert estimate.p_value is not None and estimate.p_value < 1e-6


def test_pairs_that_never_differ_weigh_as_nearly_a_cluster() -> None:
    """Nothing is known of the clusters' likeness: two pairs of weight 0.6 times 10 are added to 30 clusters of 10."""
    estimate = paired_difference([1] * 300, [1] * 300, np.repeat(np.arange(30), 10).tolist(), binary=True)
    error = math.sqrt(30 / 29 * 2 * 6**2) / 312
    assert (estimate.difference, estimate.p_value) == (0.0, 1.0)
    assert estimate.standard_error == pytest.approx(error, rel=1e-12)
    assert estimate.high == pytest.approx(2.04523 * error, rel=1e-5) == -(estimate.low or 0.0)
