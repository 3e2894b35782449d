"""confidence_sequence: against plain loops, and error rates of repeated analyses by simulation."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.sequential import CLOSE, SHARPEST_N, SMALLEST_N, STAKES, cluster_values, confidence_sequence

WINS = st.lists(st.sampled_from([-1.0, 0.0, 0.0, 1.0]), min_size=1, max_size=60)


def capital(parts: Any, mean: float) -> list[float]:
    """Return the capital after each value of a bettor on more than `mean` who divides it among the stakes."""
    purses, total = [1 / len(STAKES)] * len(STAKES), []
    for part in parts:
        purses = [purse * (1 + stake * (part / mean - 1)) for purse, stake in zip(purses, STAKES, strict=True)]
        total.append(sum(purses))
    return total


@pytest.mark.parametrize("confidence_level", [0.8, 0.95, 0.999])
def test_the_ends_are_where_the_capital_reaches_its_limit(confidence_level: float) -> None:
    rng = np.random.default_rng(61)
    for lowest, highest in ((-1.0, 1.0), (-0.5, 3.0)):
        values = np.clip(rng.normal(0.4, 0.3, 80), lowest, highest)
        result = confidence_sequence(
            values, bounds=(lowest, highest), confidence_level=confidence_level, interim_analyses=[5, 30, 80]
        )
        parts = (values - lowest) / (highest - lowest)
        for n, low, high in zip(result.n, result.low, result.high, strict=True):
            assert low is not None and high is not None
            for end, seen in (((low - lowest), parts[:n]), ((highest - high), 1 - parts[:n])):
                mean = end / (highest - lowest)
                if mean:  # otherwise nothing is rejected yet
                    assert max(capital(seen, mean)) >= 2 / (1 - confidence_level) * (1 - 1e-9)
                assert max(capital(seen, mean + 2 * CLOSE)) < 2 / (1 - confidence_level)


def test_the_expected_capital_is_1_at_the_true_mean() -> None:
    # Enumerates all 3 ** 5 outcomes of five pairs; a mean of at most 1 bounds false positives (Ville 1939).
    shares, parts = {0.0: 0.2, 0.5: 0.5, 1.0: 0.3}, np.meshgrid(*[[0.0, 0.5, 1.0]] * 5)
    ways = np.stack([part.ravel() for part in parts], axis=1)
    chances = np.prod(np.vectorize(shares.get)(ways), axis=1)
    means = [sum(chance * capital(way, 0.55)[-1] for chance, way in zip(chances, ways, strict=True))]
    means += [sum(chance * capital(1 - way, 0.45)[-1] for chance, way in zip(chances, ways, strict=True))]
    assert means == pytest.approx([1.0, 1.0])


def test_without_bounds_the_interval_is_the_published_formula() -> None:
    values = np.random.default_rng(62).normal(3, 2, 300) + 1e6
    result = confidence_sequence(values, bounds=None, confidence_level=0.9, interim_analyses=[100, 150, 300])
    assert (result.method, result.reason, result.confidence_level) == ("asymptotic gaussian mixture", None, 0.9)
    lows, highs, alpha = [], [], 0.1
    rho = math.sqrt((-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / SHARPEST_N)
    for t in range(SMALLEST_N, 301):
        inside = 2 * (t * rho**2 + 1) / (t**2 * rho**2) * math.log(math.sqrt(t * rho**2 + 1) / alpha)
        mean, half = np.mean(values[:t]), np.std(values[:t], ddof=1) * math.sqrt(inside)
        lows.append(mean - half), highs.append(mean + half)
    for n, low, high in zip(result.n, result.low, result.high, strict=True):
        seen = n - SMALLEST_N + 1
        assert (low, high) == pytest.approx((max(lows[:seen]), min(highs[:seen])), abs=1e-6)


def test_unbounded_differences_have_no_interval_below_the_smallest_n() -> None:
    values = np.random.default_rng(68).normal(size=SMALLEST_N)
    result = confidence_sequence(values, bounds=None, interim_analyses=[1, SMALLEST_N - 1, SMALLEST_N])
    assert result.low[:2] == result.high[:2] == (None, None)
    assert result.low[2] is not None and result.estimate[0] == values[0]
    assert result.reason == f"{SMALLEST_N - 1} differences: without bounds, an interval needs at least {SMALLEST_N}"


@pytest.mark.parametrize(
    ("values", "bounds", "reason"),
    [
        ([], (-1, 1), "no differences: an interval needs at least 1"),
        ([], None, f"no differences: without bounds, an interval needs at least {SMALLEST_N}"),
        ([1.0], None, f"1 difference: without bounds, an interval needs at least {SMALLEST_N}"),
        (
            [0.1 + 0.2] * 150,
            None,
            "all 150 differences are equal: no variation to compute an interval from, and no range is declared",
        ),
        ([1.0] * 200 + [-1.0] * 200, (-1, 1), "the intervals do not overlap: the mean seems to have changed"),
    ],
)
def test_a_missing_interval_has_a_reason(values: Any, bounds: Any, reason: str) -> None:
    result = confidence_sequence(values, bounds=bounds)
    assert (result.n, result.low, result.high, result.reason) == ((len(values),), (None,), (None,), reason)
    assert result.estimate == ((sum(values) / len(values),) if values else (None,)) or len({*values}) == 1


@given(WINS, st.data())
@settings(max_examples=40)
def test_an_interval_does_not_depend_on_other_analyses_or_later_data(values: list[float], data: Any) -> None:
    interim_analyses = sorted(data.draw(st.sets(st.integers(1, len(values)), min_size=1)))
    together = confidence_sequence(values, bounds=(-1, 1), interim_analyses=interim_analyses)
    assert together.n == tuple(interim_analyses)
    for place, n in enumerate(interim_analyses):
        alone = confidence_sequence(values[:n], bounds=(-1, 1))
        assert (alone.low[0], alone.high[0]) == (together.low[place], together.high[place])


def test_cluster_values_are_sums_over_the_average_size_in_order() -> None:
    result = cluster_values([1.0, 0.5, -1.0, 0.0, 1.0], ["b", "a", "b", None, "a"], average_size=5 / 3)
    assert result.values.tolist() == pytest.approx([0.0, 0.9, 0.0])
    assert result.values.mean() == pytest.approx(np.mean([1.0, 0.5, -1.0, 0.0, 1.0]))
    assert result.bounds_factor == pytest.approx(2 / (5 / 3))
    assert cluster_values([1.0], [7], average_size=2.0, largest_size=4) == (pytest.approx([0.5]), 2.0)
    assert cluster_values([1.0, 0.0], [None, None], average_size=1.0).bounds_factor == 1.0
    assert cluster_values([], [], average_size=2.0).values.shape == (0,)
