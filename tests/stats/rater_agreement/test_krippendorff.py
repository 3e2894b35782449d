"""krippendorff_alpha: the worked examples of Krippendorff 2011, and counting all pairs."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from evalflows.stats.agreement import krippendorff_alpha

GAP = None
RATERS = (
    [1, 2, 3, 3, 2, 1, 4, 1, 2, GAP, GAP, GAP],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, GAP, 3],
    [GAP, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, GAP],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, GAP],
)
"""Four observers of twelve units (Krippendorff 2011, sections C and D)."""

UNITS = [list(unit) for unit in zip(*RATERS, strict=True)]


def of_pairs(units: Sequence[Sequence[Any]], metric: str) -> float:
    """Return alpha from all pairs of ratings; distances between ranks are sums over the values between."""
    rated = [[rating for rating in unit if rating is not None] for unit in units]
    rated = [unit for unit in rated if len(unit) > 1]
    every = [rating for unit in rated for rating in unit]

    def apart(c: Any, k: Any) -> float:
        if metric == "nominal":
            return float(c != k)
        if metric == "interval":
            return (c - k) ** 2
        low, high = min(c, k), max(c, k)
        between = sum(low <= rating <= high for rating in every)
        return (between - (every.count(c) + every.count(k)) / 2) ** 2

    within = sum(sum(apart(c, k) for c, k in permutations(unit, 2)) / (len(unit) - 1) for unit in rated)
    return 1 - (len(every) - 1) * within / sum(apart(c, k) for c, k in permutations(every, 2))


@pytest.mark.parametrize(("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_the_worked_example_of_many_observers(metric: Any, published: float) -> None:
    result = krippendorff_alpha(UNITS, metric=metric)
    assert round(result.alpha or 0, 3) == published
    assert (result.n_units, result.n_clusters) == (11, None)  # the unit with one rating is ignored
    assert result.low is not None and result.high is not None and result.low < published < result.high <= 1


@pytest.mark.parametrize("metric", ["nominal", "ordinal", "interval"])
def test_alpha_matches_counting_all_pairs(metric: Any) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        shape = int(rng.integers(3, 12)), int(rng.integers(2, 5))
        values = rng.choice([1.0, 2.0, 4.0, 9.0], shape)
        units = [[None if rng.random() < 0.3 else float(rating) for rating in unit] for unit in values]
        result = krippendorff_alpha(units, metric=metric, resamples=2)
        if result.alpha is not None:
            assert result.alpha == pytest.approx(of_pairs(units, metric), abs=1e-12)


def test_clusters_of_copies_have_the_interval_of_single_units() -> None:
    rng = np.random.default_rng(7)
    units = rng.integers(0, 2, (40, 2))
    units[:, 1] = np.where(rng.random(40) < 0.8, units[:, 0], units[:, 1])
    alone = krippendorff_alpha(units.tolist())
    repeated = [unit for unit in units.tolist() for _ in range(5)]
    together = krippendorff_alpha(repeated, [number for number in range(40) for _ in range(5)])
    assert (together.n_units, together.n_clusters) == (200, 40)
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high), abs=0.02)
    naive = krippendorff_alpha(repeated)
    assert naive.high is not None and naive.low is not None and alone.low is not None and alone.high is not None
    assert naive.high - naive.low < 0.6 * (alone.high - alone.low)


@pytest.mark.parametrize(
    ("units", "alpha", "said"),
    [
        ([], None, "no unit has two ratings"),
        ([["a", "a"], ["a", "a"]], None, "all 4 ratings are the same"),
        ([["a", "b"]], 0.0, "all 1 units with two ratings are in one cluster"),
        ([["a", "a"], ["b", "b"], ["a", "a"], ["b", "b"]] * 5, 1.0, "all resamples of 20 clusters give the same alpha"),
        ([["a", "a"]] * 40 + [["a", "b"]], -0.0, "one value dominates"),
    ],
)
def test_missing_estimates_have_a_reason(units: Any, alpha: float | None, said: str) -> None:
    result = krippendorff_alpha(units)
    assert result.alpha == pytest.approx(alpha, abs=0.02)
    assert (result.low, result.high, result.resamples, result.seed) == (None, None, None, None)
    assert result.reason is not None and result.reason.startswith(said)
