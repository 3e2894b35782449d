"""one_sided_p: p-values from two-sided intervals against t-tests and score tests."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats as scipy_stats

from evalflows.stats.proportions import (
    SMALLEST_ALPHA,
    OneSidedP,
    bonett_price_interval,
    clipped,
    normal_quantile,
    one_sided_p,
    t_interval,
    wilson_interval,
)

Interval = Callable[[float], tuple[float, float]]


def normal(centre: float, error: float) -> Interval:
    return lambda confidence_level: (
        centre - normal_quantile(confidence_level) * error,
        centre + normal_quantile(confidence_level) * error,
    )


def test_t_intervals_give_the_one_sided_t_test() -> None:
    rng = np.random.default_rng(41)
    for _ in range(50):
        sample, threshold = rng.normal(0.2, 1, rng.integers(3, 40)), float(rng.normal(0, 0.5))
        mean, error = float(sample.mean()), float(sample.std(ddof=1) / math.sqrt(sample.size))
        result = one_sided_p(
            lambda confidence_level, m=mean, e=error, n=sample.size: t_interval(
                m, e, df=n - 1, confidence_level=confidence_level
            ),
            threshold,
        )
        above, below = (
            scipy_stats.ttest_1samp(sample, threshold, alternative=which).pvalue for which in ("greater", "less")
        )
        assert (result.p_above, result.p_below) == pytest.approx((above, below), abs=1e-9)


def test_wilson_intervals_give_the_score_test() -> None:
    for yes, n, share in ((30, 40, 0.6), (3, 40, 0.2), (7, 9, 0.5)):
        z = (yes / n - share) / math.sqrt(share * (1 - share) / n)
        result = one_sided_p(lambda confidence_level: wilson_interval(yes, n, confidence_level=confidence_level), share)  # noqa: B023
        assert (result.p_above, result.p_below) == pytest.approx(
            (math.erfc(z / math.sqrt(2)) / 2, math.erfc(-z / math.sqrt(2)) / 2), abs=1e-9
        )


@pytest.mark.parametrize("z", [5.0, 7.03, 7.9])
def test_small_p_values_are_accurate(z: float) -> None:
    exact = math.erfc(z / math.sqrt(2)) / 2
    assert exact < 1e-6
    # Alpha is a multiple of SMALLEST_ALPHA, which limits the precision of p.
    assert one_sided_p(normal(z, 1.0), 0.0).p_above == pytest.approx(exact, rel=1e-9, abs=SMALLEST_ALPHA)


def test_a_constant_interval_gives_the_smallest_p() -> None:
    def fixed(confidence_level: float) -> tuple[float, float]:
        return 1.0, 2.0

    assert one_sided_p(fixed, 0.5) == OneSidedP(p_above=SMALLEST_ALPHA / 2, p_below=1 - SMALLEST_ALPHA / 2)
    assert one_sided_p(fixed, 2.5) == OneSidedP(p_above=1 - SMALLEST_ALPHA / 2, p_below=SMALLEST_ALPHA / 2)
    for held in (1.0, 1.5, 2.0):  # its ends belong to it
        assert one_sided_p(fixed, held) == OneSidedP(p_above=0.5, p_below=0.5)


def test_a_clipped_interval_contains_its_bound_while_it_is_clipped() -> None:
    def cut(confidence_level: float) -> tuple[float, float]:
        return clipped(normal(0.9, 0.1)(confidence_level), 0.0, 1.0)

    at_bound = one_sided_p(cut, 1.0)
    assert at_bound.p_below == pytest.approx(one_sided_p(normal(0.9, 0.1), 1.0).p_below)  # 1 standard error away
    assert one_sided_p(cut, math.nextafter(1.0, 2.0)).p_below == SMALLEST_ALPHA / 2  # outside the possible values
    assert one_sided_p(
        lambda confidence_level: wilson_interval(20, 20, confidence_level=confidence_level), 1.0
    ) == OneSidedP(p_above=0.5, p_below=0.5)
    all_gained = one_sided_p(
        lambda confidence_level: bonett_price_interval(30, 0, 30, confidence_level=confidence_level), -1.0
    )
    assert all_gained.p_above < 1e-12


@pytest.mark.parametrize(("threshold", "p_above", "p_below"), [(math.inf, 1.0, 0.0), (-math.inf, 0.0, 1.0)])
def test_an_infinite_threshold_gives_0_and_1(threshold: float, p_above: float, p_below: float) -> None:
    assert one_sided_p(normal(0, 1), threshold) == OneSidedP(p_above=p_above, p_below=p_below)
