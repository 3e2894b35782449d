"""The correction for skew, against its formulas and the properties of intervals and p-values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalflows.stats.clusters import clustering_of, standard_error
from evalflows.stats.means import (
    sample_skewness,
    skewed_quantile,
    skewed_t_interval,
    skewed_t_p_value,
    skewness_of_mean,
    unskewed_quantile,
)

QUANTILES, SKEWS = np.linspace(0, 8, 33), (-2.0, 0.0, 1e-9, 1e-5, 0.01, 0.7, 30.0)


@pytest.mark.parametrize("n", [3, 10, 200])
def test_the_skewness_of_a_mean_is_that_of_the_values_over_sqrt_n(n: int) -> None:
    from scipy.stats import skew

    values = np.random.default_rng(n).exponential(2.0, n)
    alone = clustering_of(None, n)
    result = skewness_of_mean(values, alone, standard_error(values, alone, scale=1.0))
    assert result == pytest.approx(skew(values, bias=False) / n**0.5)
    copies = clustering_of([*range(n)] * 4, 4 * n)
    fourfold = np.tile(values, 4)
    assert skewness_of_mean(fourfold, copies, standard_error(fourfold, copies, scale=1.0)) == pytest.approx(result)


@pytest.mark.parametrize("skewness", SKEWS)
def test_unskewed_quantile_inverts_skewed_quantile(skewness: float) -> None:
    result = skewed_quantile(QUANTILES, np.array(skewness))
    assert (np.diff(result) > 0).all() and (result >= QUANTILES).all()
    np.testing.assert_allclose(unskewed_quantile(result, np.array(skewness)), QUANTILES, rtol=1e-9, atol=1e-9)
    if skewness <= 0:
        np.testing.assert_array_equal(result, QUANTILES)


def test_a_large_skewed_difference_is_significant() -> None:
    """Ten of 12 clusters gain 1 and two nothing, away from the tail; Hall's exact inverse would give 0.11."""
    values = np.array([1.0] * 10 + [0.0] * 2)
    alone = clustering_of(None, 12)
    error = standard_error(values, alone, scale=1.0)
    skewness = skewness_of_mean(values, alone, error)
    assert values.mean() / error > 7 and skewness < -0.5
    assert 0.001 < skewed_t_p_value(float(values.mean()), error, skewness, df=11) < 0.02


@settings(max_examples=40)
@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(-30, 30), st.floats(1, 1e4), st.floats(0.01, 0.99))
def test_interval_and_p_agree_and_intervals_are_nested(
    centre: float, error: float, skewness: float, df: float, confidence_level: float
) -> None:
    low, high = skewed_t_interval(centre, error, skewness, df=df, confidence_level=confidence_level)
    wide = skewed_t_interval(centre, error, skewness, df=df, confidence_level=(1 + confidence_level) / 2)
    assert wide[0] <= low <= centre <= high <= wide[1]
    p = skewed_t_p_value(centre, error, skewness, df=df)
    nearly = 1e-9 * (abs(centre) + error)
    if low > nearly or high < -nearly:
        assert p <= 1 - confidence_level + 1e-9
    elif low < -nearly and high > nearly:
        assert p >= 1 - confidence_level - 1e-9


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_the_skewness_of_a_sample_is_that_of_scipy(scale: float) -> None:
    values = scale * np.random.default_rng(9).exponential(size=25)
    assert sample_skewness(values) == pytest.approx(float(stats.skew(values / scale, bias=False)))
    assert [sample_skewness(np.array(few)) for few in ([], [1.0, 2.0], [3.0, 3.0, 3.0])] == [0.0, 0.0, 0.0]
