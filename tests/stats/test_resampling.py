"""Resampling against all resamples there are, all signs there are, and closed forms."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, product
from math import factorial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from stats.clusters import clustering_of
from stats.resampling import PIECE, _many, bca, bootstrap_means, percentile_interval, sign_flips, units_of

NORMAL = NormalDist()


def units(values: Any, clusters: Sequence[int] | None = None) -> Any:
    return units_of(np.asarray(values, dtype=float), clustering_of(clusters, len(values)))


def all_resamples(sums: Any, sizes: Any) -> tuple[Any, Any]:
    """Every mean a bootstrap of so many units can have, ascending, and its probability."""
    g = len(sums)
    means, chances = [], []
    for chosen in combinations_with_replacement(range(g), g):
        counts = np.bincount(chosen, minlength=g)
        means.append(counts @ sums / (counts @ sizes))
        chances.append(factorial(g) / np.prod([factorial(k) for k in counts.tolist()]) / g**g)
    order = np.argsort(means)
    return np.array(means)[order], np.array(chances)[order]


CASES = [
    (np.random.default_rng(n).exponential(size=n), None if n % 2 else [k // 2 for k in range(n)])
    for n in (3, 5, 7, 8, 9)
] + [(np.random.default_rng(9).normal(size=12), [0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 4, 4])]


def totals(values: Any, clusters: Any) -> tuple[Any, Any]:
    numbers = range(len(values)) if clusters is None else clusters
    return np.bincount(numbers, weights=values), np.bincount(numbers)


@pytest.mark.parametrize(("values", "clusters"), CASES)
def test_resamples_are_distributed_as_all_of_them(values: Any, clusters: Any) -> None:
    found, draws = units(values, clusters), 20_000
    means = bootstrap_means(found, resamples=draws, seed=1) * found.sign
    every, chances = all_resamples(*totals(values, clusters))
    assert chances.sum() == pytest.approx(1)
    for at in np.quantile(every, [0.05, 0.3, 0.5, 0.8, 0.97]) + 1e-9:
        exact = chances[every <= at].sum()
        error = (exact * (1 - exact) / draws) ** 0.5
        assert abs(np.mean(means <= at) - exact) <= 4 * error


def exact_bca(values: Any, clusters: Any, t: Callable[[Any, Any], Any]) -> tuple[float, float]:
    """The share of all resamples below each end of the 90 % interval, by Efron's formulas and Hesterberg's z."""
    sums, sizes = totals(values, clusters)
    every, chances = all_resamples(sums, sizes)
    mean = sums.sum() / sizes.sum()
    equal = np.abs(every - mean) < 1e-9
    bias = NORMAL.inv_cdf(chances[(every < mean) & ~equal].sum() + chances[equal].sum() / 2)
    left = np.array([(sums.sum() - s) / (sizes.sum() - k) for s, k in zip(sums, sizes, strict=True)])
    away = left.mean() - left
    pull = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    z = (len(sums) / (len(sums) - 1)) ** 0.5 * float(t(0.9, len(sums) - 1.0))
    ends = [bias + (bias + side) / (1 - pull * (bias + side)) for side in (-z, z)]
    return NORMAL.cdf(ends[0]), NORMAL.cdf(ends[1])


@pytest.mark.parametrize(("values", "clusters"), CASES[1:])
def test_bca_ends_where_all_resamples_say(values: Any, clusters: Any, t_bisected: Callable[[Any, Any], Any]) -> None:
    draws = 20_000
    found = bca(units(values, clusters), level=0.9, resamples=draws, seed=2)
    every, chances = all_resamples(*totals(values, clusters))
    for end, share in zip((found.low, found.high), exact_bca(values, clusters, t_bisected), strict=True):
        assert end is not None
        # The bias is drawn as well: its error moves the share as much again.
        error = 4 * 2 * (share * (1 - share) / draws) ** 0.5 + 4 * (0.25 / draws) ** 0.5 * share * (1 - share) * 4
        assert chances[every < end - 1e-9].sum() - error <= share <= chances[every <= end + 1e-9].sum() + error


def test_percentiles_of_many_normal_numbers_are_those_of_t() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.0, 400)
    error = values.std() / 20
    low, high = percentile_interval(units(values), level=0.9, resamples=20_000, seed=3)
    assert (low, high) == pytest.approx(
        (values.mean() - 1.645 * error, values.mean() + 1.645 * error), abs=0.08 * error
    )
    found = bca(units(values), level=0.9, resamples=20_000, seed=3)
    assert found.standard_error == pytest.approx(error, rel=4 / 40_000**0.5)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * error)


@pytest.mark.parametrize("n", [PIECE - 1, PIECE, 3 * PIECE + 500])
@pytest.mark.parametrize("kinds", [3, None])
@pytest.mark.parametrize("clustered", [False, True])
def test_however_units_are_drawn_the_error_is_the_closed_one(n: int, kinds: int | None, clustered: bool) -> None:
    rng = np.random.default_rng(4)
    values = rng.exponential(size=n) if kinds is None else rng.integers(0, kinds, n).astype(float)
    clusters = np.repeat(np.arange(n), 2) if clustered else None
    if clusters is not None:  # of one or two: every third is alone
        keep = (np.arange(2 * n) % 2 == 0) | (clusters % 3 > 0)
        clusters, values = clusters[keep], np.repeat(values, 2)[keep]
    found = units(values, None if clusters is None else clusters.tolist())
    assert found.count == n
    means = bootstrap_means(found, resamples=400, seed=5) * found.sign
    sums, sizes = totals(values, clusters)
    error = np.sqrt(((sums - sizes * values.mean()) ** 2).sum()) / sizes.sum()
    assert means.mean() == pytest.approx(values.mean(), abs=4 * error / 20)
    assert means.std() == pytest.approx(error, rel=4 / 800**0.5)


def test_places_are_even_over_pieces_and_within() -> None:
    """Of a resample of steps, each share of them is as likely: means of the indicator of each stretch."""
    n = 2 * PIECE + 1000
    for start, stop in ((0, PIECE // 2), (PIECE, PIECE + 700), (2 * PIECE, n), (n - 1, n)):
        inside = np.zeros(n)
        inside[start:stop] = 1
        found = _many([inside], 200, np.random.Generator(np.random.SFC64(6)))[0]
        share = (stop - start) / n
        assert abs(found.mean() / n - share) <= 4 * (share * (1 - share) / n / 200) ** 0.5


def all_flips(values: Any, clusters: Any) -> tuple[Any, Any, Any]:
    sums, sizes = totals(values, clusters)
    chosen = np.array([*product((0, 1), repeat=len(sums))])
    return chosen @ sums, chosen @ sizes, sums


FLIPPED = [
    (np.random.default_rng(40 + n).normal(0.6, 1, n), None if n % 3 else [k // 2 for k in range(n)])
    for n in range(2, 11)
]


@pytest.mark.parametrize(("values", "clusters"), FLIPPED)
def test_signs_are_flipped_in_all_ways(values: Any, clusters: Any) -> None:
    found = sign_flips(units(values, clusters), level=0.8, resamples=1024, seed=0)
    flipped, _, sums = all_flips(values, clusters)
    expected = np.mean(np.abs(sums.sum() - 2 * flipped) >= abs(sums.sum()) - 1e-9)
    assert (found.p_value, found.resamples) == (pytest.approx(expected, abs=1e-12), None)


@pytest.mark.parametrize(("values", "clusters"), FLIPPED)
def test_the_interval_ends_where_the_test_begins_to_refuse(values: Any, clusters: Any) -> None:
    found = sign_flips(units(values, clusters), level=0.8, resamples=1024, seed=0)

    def p_at(shift: float) -> float:
        return sign_flips(units(values - shift, clusters), level=0.8, resamples=1024, seed=0).p_value

    if found.low is None or found.high is None:
        assert min(p_at(-1e6), p_at(1e6)) > 0.2
        return
    assert p_at(found.low + 1e-6) > 0.2 + 1e-9 and p_at(found.high - 1e-6) > 0.2 + 1e-9
    assert p_at(found.low - 1e-6) <= 0.2 + 1e-9 and p_at(found.high + 1e-6) <= 0.2 + 1e-9


@pytest.mark.parametrize(("values", "clusters"), FLIPPED[5:])
def test_signs_drawn_come_near_to_all_of_them(values: Any, clusters: Any) -> None:
    exact = sign_flips(units(values, clusters), level=0.8, resamples=1024, seed=0)
    draws = 2 ** len(totals(values, clusters)[0]) - 1
    drawn = [sign_flips(units(values, clusters), level=0.8, resamples=draws, seed=seed) for seed in range(200)]
    assert {one.resamples for one in drawn} == {draws}
    p = exact.p_value
    expected = (p * draws + 1) / (draws + 1)  # with the one that was found
    error = (p * (1 - p) / draws / 200) ** 0.5
    assert abs(np.mean([one.p_value for one in drawn]) - expected) <= 4 * error + 1e-12


def test_drawn_p_is_never_0() -> None:
    found = sign_flips(units(np.full(40, 1.0)), level=0.95, resamples=99, seed=0)
    assert found.p_value == 0.01


def test_the_seed_decides_and_order_does_not() -> None:
    values = np.random.default_rng(7).normal(0.1, 1, 60)
    for function in (bca, sign_flips):
        one, again, backwards, other = (
            function(units(some), level=0.95, resamples=500, seed=seed)
            for some, seed in ((values, 1), (values, 1), (values[::-1], 1), (values, 2))
        )
        assert one == again == backwards and one != other
        turned = function(units(-values), level=0.95, resamples=500, seed=1)
        assert (turned.low, turned.high, turned.p_value) == (-one.high, -one.low, one.p_value)  # type: ignore[operator]


def test_p_of_bca_is_one_minus_the_level_that_ends_at_0() -> None:
    values = np.random.default_rng(8).exponential(size=25) - 0.5
    p = bca(units(values), level=0.95, resamples=5000, seed=3).p_value
    at = bca(units(values), level=1 - p, resamples=5000, seed=3)
    assert at.low is not None and at.low == pytest.approx(0.0, abs=0.003)
    assert 0.001 < p < 0.5
