"""Tests by rank against all ways to deal the ranks, scipy, and intervals of sorted means and differences."""

from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from stats.ranks import EXACT, rank_sum, signed_rank

RNG = np.random.default_rng(30)


def midranks(values: Any) -> Any:
    return scipy_stats.rankdata(values)


def all_signs(differences: Any) -> float:
    """p of the signed-rank test, every way to sign the ranks tried."""
    counted = np.array([one for one in differences if one])
    ranks = midranks(np.abs(counted))
    sums = np.array([*product((0, 1), repeat=counted.size)]) @ ranks
    found = ranks[counted > 0].sum()
    return min(1.0, 2 * min(float(np.mean(sums <= found + 1e-9)), float(np.mean(sums >= found - 1e-9))))


def all_deals(first: Any, second: Any) -> float:
    """p of the rank-sum test, every way to deal the ranks tried."""
    ranks, n = midranks(np.concatenate([first, second])), len(first)
    sums = np.array([sum(chosen) for chosen in combinations(ranks, n)])
    found = ranks[:n].sum()
    return min(1.0, 2 * min(float(np.mean(sums <= found + 1e-9)), float(np.mean(sums >= found - 1e-9))))


@pytest.mark.parametrize("tied", [False, True])
def test_signed_ranks_are_counted(tied: bool) -> None:
    for n in [*range(1, 11)] * 5:
        differences = RNG.integers(-3, 5, n).astype(float) if tied else RNG.normal(0.4, 1, n)
        found = signed_rank(differences, level=0.95, scale=10.0)
        assert found.p_value == pytest.approx(all_signs(differences) if differences.any() else 1.0, abs=1e-9)
        assert found.exact


@pytest.mark.parametrize("tied", [False, True])
def test_rank_sums_are_counted(tied: bool) -> None:
    for n, m in [(int(n), int(m)) for n, m in RNG.integers(1, 7, (50, 2))]:
        first, second = ((RNG.integers(0, 4, size) if tied else RNG.normal(size=size)).astype(float) for size in (n, m))
        assert rank_sum(first, second, level=0.95).p_value == pytest.approx(all_deals(first, second), abs=1e-9)


def test_p_is_that_of_scipy_where_that_is_exact_and_beyond() -> None:
    for n in (20, 40, EXACT, EXACT + 1, 90):
        first, second = RNG.normal(0.3, 1, n), RNG.normal(0, 1, n)
        of_pairs = scipy_stats.wilcoxon(first, method="exact" if n <= EXACT else "asymptotic").pvalue
        assert signed_rank(first, level=0.95, scale=1.0).p_value == pytest.approx(of_pairs, abs=1e-9)
        method = "exact" if 2 * n <= EXACT else "asymptotic"
        of_samples = scipy_stats.mannwhitneyu(first, second, method=method).pvalue
        assert rank_sum(first, second, level=0.95).p_value == pytest.approx(of_samples, abs=1e-9)


def test_one_that_is_counted_and_the_normal_one_meet() -> None:
    differences = np.round(RNG.normal(0.25, 1, EXACT), 1)
    differences[differences == 0] = 0.1
    counted = signed_rank(differences, level=0.95, scale=1.0).p_value
    assert counted == pytest.approx(scipy_stats.wilcoxon(differences, method="asymptotic").pvalue, abs=0.01)


def tail(n_ways: list[int], k: int) -> float:
    return sum(n_ways[:k]) / sum(n_ways)


def test_the_interval_of_pairs_is_made_of_sorted_means() -> None:
    for n in range(6, 13):
        differences = RNG.normal(size=n)
        walsh = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
        sums = np.bincount(np.array([*product((0, 1), repeat=n)]) @ np.arange(1, n + 1)).tolist()
        rank = max(k for k in range(len(walsh)) if 2 * tail(sums, k) <= 0.05)
        found = signed_rank(differences, level=0.95, scale=float(np.abs(differences).max()))
        assert (found.low, found.high) == pytest.approx((walsh[rank - 1], walsh[-rank]), abs=1e-9)
        assert found.shift == pytest.approx(np.median(walsh), abs=1e-9)


def test_the_interval_of_samples_is_made_of_sorted_differences() -> None:
    for n, m in [(4, 5), (6, 6), (3, 9), (8, 4)]:
        first, second = RNG.normal(1, 1, n), RNG.normal(size=m)
        every = np.sort(np.subtract.outer(first, second).ravel())
        sums = np.bincount([sum(one) - n * (n + 1) // 2 for one in combinations(range(1, n + m + 1), n)]).tolist()
        assert sum(sums) == comb(n + m, n)
        rank = max(k for k in range(every.size) if 2 * tail(sums, k) <= 0.05)
        found = rank_sum(first, second, level=0.95)
        assert (found.low, found.high) == pytest.approx((every[rank - 1], every[-rank]), abs=1e-9)
        assert found.shift == pytest.approx(np.median(every), abs=1e-9)


def test_darwins_maize_as_published() -> None:
    # Darwin 1876; R's wilcox.test(x, conf.int = TRUE) of the differences in eighths of an inch, exact without ties
    eighths = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    found = signed_rank(np.array(eighths, dtype=float), level=0.95, scale=75.0)
    assert found.p_value == pytest.approx(0.04126, abs=5e-6)  # W = 96


def test_intervals_hold_the_shift() -> None:
    pairs, samples = 0, 0
    for _ in range(600):
        drawn = RNG.laplace(0.3, 1, 30)
        one, other = signed_rank(drawn, level=0.95, scale=5.0), rank_sum(drawn, RNG.laplace(0, 1, 40), level=0.95)
        pairs += one.low is not None and one.high is not None and one.low <= 0.3 <= one.high
        samples += other.low is not None and other.high is not None and other.low <= 0.3 <= other.high
    assert pairs / 600 > 0.92 and samples / 600 > 0.92


def test_too_few_have_no_interval_and_no_small_p() -> None:
    few = signed_rank(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), level=0.95, scale=5.0)
    assert (few.low, few.high, few.p_value) == (None, None, 0.0625)
    assert signed_rank(np.arange(1.0, 7.0), level=0.95, scale=6.0).low == pytest.approx(1.0)
    assert rank_sum(np.arange(3.0), np.arange(5.0, 8.0), level=0.95).low is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=60), st.lists(st.integers(-8, 8), min_size=1, max_size=20))
def test_swapping_flips_and_constants_do_no_harm(one: list[int], other: list[int]) -> None:
    first, second = np.array(one, dtype=float), np.array(other, dtype=float)
    if np.ptp(np.concatenate([first, second])):
        there, back = rank_sum(first, second, level=0.9), rank_sum(second, first, level=0.9)
        assert (there.shift, there.p_value) == (pytest.approx(-back.shift), pytest.approx(back.p_value))
        assert 0 <= there.p_value <= 1
    there, back = (signed_rank(sign * first, level=0.9, scale=8.0) for sign in (1.0, -1.0))
    assert (there.shift, there.p_value) == (pytest.approx(-back.shift), pytest.approx(back.p_value))
    if there.low is not None and back.high is not None:
        assert there.low == pytest.approx(-back.high)
