"""Bounded values that vary little: the interval allows for rare values at the end of the range that were not drawn."""

import numpy as np
import pytest

from evalflows.stats.clusters import FloatArray
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference, paired_differences
from evalflows.stats.proportions import clopper_pearson_interval

RUNS = 2000
RANGE = (0.0, 1.0)


def near_one(n: int, share_of_0: float, *, lift: float = 0.0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng([n, round(1000 * share_of_0)])
    candidate, baseline = rng.normal(0.95, 0.033, (2, RUNS, n)).clip(0, 1)
    return np.where(rng.random((RUNS, n)) < share_of_0, 0.0, candidate + lift).clip(0, 1), baseline


@pytest.mark.parametrize(("n", "share"), [(30, 0.03), (30, 0.12), (60, 0.05), (100, 0.03), (200, 0.01), (299, 0.01)])
def test_a_loss_by_rare_zeros_is_rarely_taken_for_none(n: int, share: float) -> None:
    candidate, baseline = near_one(n, share)
    loss = 0.95 * share
    low = paired_differences(candidate, baseline, bounds=RANGE).interval_at(0.95)[0]
    assert np.mean(low > -loss) <= 0.025, "of t alone, 37 % at 30 pairs"
    lowest = [mean_estimate(row, bounds=RANGE).low or 0.0 for row in candidate[:600]]
    assert np.mean(np.array(lowest) > (1 - share) * 0.9495) <= 0.035


def test_a_better_body_does_not_hide_rare_zeros() -> None:
    better = paired_differences(*near_one(200, 0.01, lift=0.0095), bounds=RANGE)
    assert np.mean((better.interval_at(0.95)[0] > 0) | ((better.p_value <= 0.05) & (better.difference > 0))) <= 0.025


@pytest.mark.parametrize(("sd", "n"), [(0.09, 100), (0.1, 30), (0.15, 30)])
def test_ordinary_scores_keep_their_power(sd: float, n: int) -> None:
    d = np.random.default_rng(n).normal(2.8 * sd / np.sqrt(n), sd, (RUNS, n)).clip(-1, 1)
    candidate, baseline = 0.5 + d / 2, 0.5 - d / 2
    ours, by_t = (paired_differences(candidate, baseline, bounds=bounds) for bounds in (RANGE, None))
    assert np.mean(ours.interval_at(0.95)[0] > 0) >= 0.95 * np.mean(by_t.interval_at(0.95)[0] > 0)


def test_the_p_value_is_where_the_interval_ends_at_zero() -> None:
    rng = np.random.default_rng(1)
    for shift in (0.04, -0.04, 0.015):
        candidate, baseline = rng.normal([[0.8 + shift], [0.8]], 0.02, (2, 80))
        found = paired_difference(candidate, baseline, bounds=RANGE)
        assert found.method == "skew-corrected t and clopper-pearson" and found.standard_error is None
        at_p = paired_difference(candidate, baseline, bounds=RANGE, confidence_level=1 - (found.p_value or 0))
        assert at_p.low is not None and at_p.high is not None
        assert min(abs(at_p.low), abs(at_p.high)) == pytest.approx(0, abs=1e-9)


def test_the_ends_are_those_of_a_share_of_worst_values_that_was_not_drawn() -> None:
    values = np.random.default_rng(2).normal(0.9, 0.001, 50)
    found, missed = mean_estimate(values, bounds=RANGE), clopper_pearson_interval(0, 50, confidence_level=0.95)[1]
    assert found.mean is not None and found.method == "skew-corrected t and clopper-pearson"
    assert (found.low, found.high) == pytest.approx((found.mean * (1 - missed), found.mean + missed * (1 - found.mean)))
    assert mean_estimate(values).method == "skew-corrected t", "without a range"
    in_clusters = mean_estimate(values, [place // 5 for place in range(50)], bounds=RANGE)
    assert in_clusters.low == pytest.approx(found.mean * 0.025 ** (1 / 10)), "clusters count, not examples"
