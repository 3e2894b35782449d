"""paired_difference: coverage of intervals and false positives of tests, by simulation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evalflows.stats.paired import paired_difference


def simulate(draw: Callable[[np.random.Generator], tuple[Any, Any, Any]], runs: int, **settings: Any) -> Any:
    """Return the intervals and p-values of `runs` draws of candidate, baseline and clusters; shape (runs, 3)."""
    rng = np.random.default_rng(13)
    result = [paired_difference(*draw(rng), **settings) for _ in range(runs)]
    return np.array([(estimate.low, estimate.high, estimate.p_value) for estimate in result])


def assert_covers(result: Any, truth: float, least: float) -> None:
    assert np.mean((result[:, 0] <= truth) & (truth <= result[:, 1])) >= least


@pytest.mark.slow
@pytest.mark.parametrize(("g", "runs", "least"), [(30, 1500, 0.92)])
@pytest.mark.parametrize("binary", [False, True])
def test_clustered_intervals_cover_and_tests_seldom_err(g: int, runs: int, least: float, binary: bool) -> None:
    def draw(rng: np.random.Generator) -> tuple[Any, Any, Any]:
        clusters = np.repeat(np.arange(g), rng.integers(1, 6, g))
        shares = rng.beta(4, 3, (2, g))[:, clusters]
        noise = rng.random(shares.shape)
        ours, theirs = noise < shares if binary else shares + noise
        return ours, theirs, clusters.tolist()

    result = simulate(draw, runs, binary=binary)
    assert_covers(result, 0.0, least)
    assert np.mean(result[:, 2] <= 0.05) <= 0.06 + (0.95 - least)


def test_intervals_cover_a_skewed_difference_and_tests_seldom_err() -> None:
    # Without the correction, coverage is 90.3 % and tests err in 9.7 %, by simulation.
    result = simulate(lambda rng: (rng.lognormal(size=30).clip(max=10), 1.6053 + rng.normal(size=30) / 2, None), 1500)
    assert_covers(result, 0.0, 0.925)
    assert np.mean(result[:, 2] <= 0.05) <= 0.075
