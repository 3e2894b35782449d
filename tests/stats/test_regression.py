"""Figures of numeric answers: equal to scipy's and scikit-learn's, also where answers count several times."""

from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats

from evalflows.stats.regression import BOUNDS, Regression, RegressionFigure

metrics = pytest.importorskip("sklearn.metrics")


def theirs(expected: Any, got: Any) -> list[float]:
    return [
        metrics.mean_absolute_error(expected, got),
        metrics.root_mean_squared_error(expected, got),
        float(np.mean(got - expected)),
        stats.pearsonr(expected, got).statistic,
        stats.spearmanr(expected, got).statistic,
        metrics.r2_score(expected, got),
    ]


def test_figures_are_those_of_scipy_and_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for expected, noise in (
        (rng.normal(size=40), rng.normal(size=40)),
        (rng.integers(1, 6, 40) * 1.0, rng.integers(-2, 3, 40) * 1.0),  # ties
        (rng.lognormal(size=30), rng.lognormal(size=30)),
        (1e6 + rng.normal(size=30), rng.normal(size=30)),
    ):
        got, n = expected + noise, len(expected)
        weights = np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=4)]).astype(np.float64)
        found = Regression(expected, got)(weights)
        for row, counts in zip(found, weights.astype(int), strict=True):
            wanted = theirs(np.repeat(expected, counts), np.repeat(got, counts))
            assert row == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert tuple(BOUNDS) == get_args(RegressionFigure)


def test_equal_numbers_have_no_correlation() -> None:
    expected, got = np.array([0.1, 0.1, 0.1, 0.7]), np.array([1.0, 2.0, 3.0, 3.0])
    weights = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    found = Regression(expected, got, ["pearson", "spearman", "r2", "bias"])(weights)
    assert np.isnan(found[0]).tolist() == [True, True, True, False]
    assert np.isnan(found[1]).tolist() == [True, True, False, False]
    assert np.isfinite(found[2]).all()
