"""Bounded values: the interval allows for rare values that were not drawn, and depends on the sample without a jump."""

import numpy as np
import pytest

from evalflows.stats.arrays import FloatArray
from evalflows.stats.bounded_means import MOST_POINTS, lower_bounds
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference, paired_differences
from evalflows.stats.proportions import clopper_pearson_interval

RUNS = 2000
RANGE = (0.0, 1.0)


def near(base: float, n: int, sd: float, share_of_0: float, *, lift: float = 0.0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng([n, round(1000 * share_of_0), round(1000 * sd)])
    candidate, baseline = rng.normal(base, sd, (2, RUNS, n)).clip(0, 1)
    return np.where(rng.random((RUNS, n)) < share_of_0, 0.0, candidate + lift).clip(0, 1), baseline


@pytest.mark.parametrize("n", [25, 30, 100, 400])
@pytest.mark.parametrize("alpha", [0.001, 0.025, 0.2])
def test_of_two_values_it_is_the_exact_bound_of_a_share(n: int, alpha: float) -> None:
    for yes in (n, n - 1, n // 2, 1):
        values = (np.arange(n) < yes).astype(float)[None]
        exact = clopper_pearson_interval(yes, n, confidence_level=1 - 2 * alpha)[0]
        assert lower_bounds(values, np.zeros(1), alpha)[0] == pytest.approx(exact, abs=5e-4)


@pytest.mark.parametrize("n", [30, 3 * MOST_POINTS])
def test_of_other_values_it_is_the_quantile_of_the_weighted_mean(n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.beta(6, 2, n)
    weights = rng.standard_exponential((4000, n + 1))
    means = weights @ np.append(values, 0.0) / weights.sum(axis=1)
    assert np.mean(means < lower_bounds(values[None], np.zeros(1), 0.025)[0]) == pytest.approx(0.025, abs=0.008)


@pytest.mark.parametrize(
    ("base", "n", "sd", "share"),
    [
        *((0.95, 30, 0.07, 0.05), (0.95, 30, 0.03, 0.12), (0.75, 30, 0.01, 0.01), (0.75, 100, 0.05, 0.03)),
        *((0.95, 200, 0.01, 0.03), (0.75, 60, 0.1, 0.05), (0.95, 299, 0.03, 0.01)),
    ],
)
def test_a_loss_by_rare_zeros_is_rarely_taken_for_none(base: float, n: int, sd: float, share: float) -> None:
    candidate, baseline = near(base, n, sd, share)
    without = near(base, n, sd, 0.0)[0]
    loss = share * float(without.mean())
    low = paired_differences(candidate, baseline, bounds=RANGE).interval_at(0.95)[0]
    assert np.mean(low > -loss) <= 0.025, "of t alone, up to 41 %"
    lowest = [mean_estimate(row, bounds=RANGE).low or 0.0 for row in candidate[:200]]
    assert np.mean(np.array(lowest) > (1 - share) * without.mean()) <= 0.035


def test_no_difference_at_all_needs_no_allowance() -> None:
    gained = paired_differences(*near(0.75, 100, 0.035, 0.0, lift=0.02), bounds=RANGE)
    low, high = gained.tested_interval_at(0.95)
    assert np.mean((low > 0) & (gained.p_value <= 0.05)) >= 0.9 and np.mean(gained.interval_at(0.95)[0] > 0) <= 0.1
    pair = paired_difference(gained.candidate[0], gained.baseline[0], bounds=RANGE)
    assert (pair.tested_low, pair.tested_high) == (low[0], high[0]) and pair.method == "gaffke; skew-corrected t"
    by_t = paired_difference(gained.candidate[0], gained.baseline[0])
    assert (by_t.low, by_t.high, by_t.p_value) == (low[0], high[0], pair.p_value)
    told = paired_difference(gained.candidate[0], gained.baseline[0], bounds=RANGE, rare_values=False)
    assert (told.low, told.high, told.method) == (by_t.low, by_t.high, "skew-corrected t")
    at_p = paired_difference(gained.candidate[0], gained.baseline[0], confidence_level=1 - (pair.p_value or 0))
    assert min(abs(at_p.low or 1), abs(at_p.high or 1)) == pytest.approx(0, abs=1e-9)


def test_with_many_values_that_vary_it_costs_little() -> None:
    candidate, baseline = near(0.5, 400, 0.2 / np.sqrt(2), 0.0)
    ours, by_t = (paired_differences(candidate, baseline, bounds=bounds) for bounds in (RANGE, None))
    widths = [high - low for low, high in (ours.interval_at(0.95), by_t.interval_at(0.95))]
    assert np.mean(widths[0]) <= 1.15 * np.mean(widths[1])


def test_a_little_more_spread_changes_no_bound_by_much() -> None:
    noise = np.random.default_rng(3).standard_normal((1000, 60))
    last = None
    for sd in np.arange(0.05, 0.1, 0.001):
        candidate = (0.7 + sd * noise).clip(0, 1)
        ends = paired_differences(candidate, np.full_like(candidate, 0.7), bounds=RANGE).interval_at(0.95)
        if last is not None:
            width = ends[1] - ends[0]
            assert all(np.all(np.abs(end - before) <= 0.02 * width) for end, before in zip(ends, last, strict=True))
        last = ends


def test_a_pair_can_lose_no_more_than_the_largest_baseline() -> None:
    """And win no more than what the smallest lacks; each end is that of a share that was not drawn."""
    candidate = np.random.default_rng(2).normal(0.5, 1e-4, 50)
    found, missed = paired_difference(candidate, np.full(50, 0.5), bounds=RANGE), 1 - 0.025 ** (1 / 50)
    assert (found.low, found.high) == pytest.approx((-0.5 * missed, 0.5 * missed), abs=1e-3)
    constant = paired_difference(np.full(50, 0.6), np.full(50, 0.5), bounds=RANGE)
    assert (constant.low, constant.high) == pytest.approx((0.1 - 0.6 * missed, 0.1 + 0.4 * missed))
    in_clusters = mean_estimate(candidate, [place // 5 for place in range(50)], bounds=RANGE)
    assert in_clusters.low == pytest.approx(0.5 * 0.025 ** (1 / 10), abs=2e-3), "clusters count, not examples"
    assert in_clusters.method == "gaffke and cluster-robust skew-corrected t"


def test_of_so_many_times_as_many_pairs_it_is_what_they_would_give() -> None:
    candidate, baseline = near(0.8, 40, 0.05, 0.0)
    few = paired_differences(candidate[:5], baseline[:5], bounds=RANGE)
    tripled = paired_differences(np.tile(candidate[:5], 3), np.tile(baseline[:5], 3), bounds=RANGE)
    assert few.of_size(120).interval_at(0.95)[0] == pytest.approx(tripled.interval_at(0.95)[0], abs=1e-3)


@pytest.mark.parametrize("below", [0.0, 2.0**-54, 1e-12])
def test_at_half_it_is_the_mean_also_without_skew(below: float) -> None:
    """Where the quantile of the mean is 0 but for rounding."""
    values = np.repeat([0.0, -0.5, -1.0], [6, 13, 5])[None]  # with the worst value as many of either end
    assert lower_bounds(values, np.full(1, -1.0), 0.5 - below)[0] == pytest.approx(-0.5, abs=1e-9)
