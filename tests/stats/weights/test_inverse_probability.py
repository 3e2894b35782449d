"""linearised: unbiased means under unequal sampling probabilities, and their standard errors."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.means import linearised

VALUES = st.floats(-100, 100)
WEIGHTS = st.floats(0.1, 100)
WEIGHED = st.lists(st.tuples(VALUES, WEIGHTS), min_size=1, max_size=12)


def plainly(weighed: list[tuple[float, float]]) -> float:
    """Return sum(w x) / sum(w), term by term."""
    return sum(weight * value for value, weight in weighed) / sum(weight for _, weight in weighed)


# The mean


@settings(max_examples=40)
@given(WEIGHED)
def test_the_mean_of_linearised_values_is_the_weighted_mean(weighed: list[tuple[float, float]]) -> None:
    assert linearised(*zip(*weighed, strict=True)).mean() == pytest.approx(plainly(weighed), abs=1e-9)


@pytest.mark.parametrize("weight", [1.0, 4.0, 1e-9, 1e9])
def test_equal_weights_change_nothing(weight: float) -> None:
    values = np.array([0.1, 0.7, 0.30000000000000004, 1.0])
    assert np.array_equal(linearised(values, np.full(4, weight)), values), "not by one bit: 0 and 1 stay 0 and 1"


def test_the_mean_is_unbiased_over_all_samples_of_a_small_population() -> None:
    """Samples of 2 of 3 and 2 of 5: the mean over all 3 x 10 samples is that of the population."""
    flush, cheap = [0.3, 0.1, 0.2], [1.0, 0.0, 0.5, 0.25, 0.75]
    weights = [3 / 2, 3 / 2, 5 / 2, 5 / 2]
    draws = [[*a, *b] for a in combinations(flush, 2) for b in combinations(cheap, 2)]
    means = [linearised(draw, weights).mean() for draw in draws]
    assert len(means) == 30
    assert np.mean(means) == pytest.approx(np.mean([*flush, *cheap]), abs=1e-12)
    assert np.mean([np.mean(draw) for draw in draws]) != pytest.approx(np.mean([*flush, *cheap]), abs=1e-3)


# How sure it is


def ratio_error(values: Any, weights: Any) -> float:
    """The standard error of a ratio of two means by Taylor's linearisation (Cochran 1977, eq. 2.46 and 6.13).

    With z = w x, the ratio r = mean(z) / mean(w) has the variance of z - r w, over n, by the square of mean(w).
    """
    z, w = np.asarray(weights) * np.asarray(values), np.asarray(weights, dtype=float)
    r, n = z.mean() / w.mean(), len(w)
    variance = z.var(ddof=1) + r**2 * w.var(ddof=1) - 2 * r * np.cov(z, w)[0, 1]
    return float(np.sqrt(variance / n) / w.mean())


def regression_error(values: Any, weights: Any) -> float:
    """The robust (HC1) standard error of a constant that is fitted by weighted least squares, matrix by matrix."""
    n, x, w = len(values), np.ones((len(values), 1)), np.diag(np.asarray(weights, dtype=float))
    bread = np.linalg.inv(x.T @ w @ x)
    residuals = np.asarray(values) - x @ (bread @ x.T @ w @ np.asarray(values))
    meat = x.T @ w @ np.diag(residuals**2) @ w @ x
    return float(np.sqrt(n / (n - 1) * (bread @ meat @ bread)[0, 0]))


def test_the_standard_error_matches_the_ratio_estimator_and_a_weighted_regression() -> None:
    rng = np.random.default_rng(3)
    for n in (2, 3, 10, 200):
        values, weights = rng.normal(size=n), rng.choice([1.0, 4.0, 10.0], n) + rng.uniform(0, 0.1, n)
        error = linearised(values, weights).std(ddof=1) / n**0.5
        assert error == pytest.approx(ratio_error(values, weights), rel=1e-9)
        assert error == pytest.approx(regression_error(values, weights), rel=1e-9)
