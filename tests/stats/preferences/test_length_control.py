"""length_controlled: against explicit likelihoods and simulated judges that prefer length."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

from evalflows.stats import length_controlled

ROW = st.tuples(
    st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(-50, 50), st.sampled_from("abcdefghijklm"), st.integers(-1, 1)
)


def chance(log_odds: Any) -> Any:
    return 1 / (1 + np.exp(-log_odds))


def brute(points: Any, longer_by: Any, order: Any = None) -> list[float]:
    """Return the coefficients that maximise the likelihood term by term, with half a win and a loss for each."""
    spread = np.std(longer_by, ddof=1)
    rows = [[1.0, math.tanh(longer / spread)] for longer in longer_by]
    rows = rows if order is None else [[*row, shown] for row, shown in zip(rows, order, strict=True)]

    def lost(at: Any) -> Any:
        total = sum(math.log(chance(each)) / 2 + math.log(chance(-each)) / 2 for each in at)
        for row, won in zip(rows, points, strict=True):
            x = sum(each * term for each, term in zip(at, row, strict=True))
            total += won * math.log(chance(x)) + (1 - won) * math.log(chance(-x))
        return -total

    result = minimize(lost, np.zeros(len(rows[0])), method="BFGS", options={"gtol": 1e-8})
    return [float(each) for each in result.x]


def judged(
    rng: np.random.Generator, n: int, quality: float, length: float, order: float = 0.0, longer: float = 0.7
) -> tuple[Any, Any, Any]:
    """Return points, lengths and order for a judge with these preferences for quality, length and first position."""
    longer_by, shown = rng.normal(100 * longer, 100, n), rng.choice([-1.0, 1.0], n)
    share = chance(quality + length * np.tanh(longer_by / longer_by.std(ddof=1)) + order * shown)
    return (rng.random(n) < share).astype(float), longer_by, shown


@pytest.mark.parametrize("with_order", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_fit_maximises_the_explicit_likelihood(seed: int, with_order: bool) -> None:
    rng = np.random.default_rng(70 + seed)
    points, longer_by, order = judged(rng, 40, 0.5, 1.0, 0.5)
    points = np.where(rng.random(40) < 0.3, rng.random(40), points)
    result = length_controlled(points, longer_by, order=order if with_order else None)
    constant, *_ = brute(points, longer_by, order if with_order else None)
    assert result.rate == pytest.approx(chance(constant), abs=1e-6)
    assert result.method == f"logistic on length{' and order' if with_order else ''}; cluster-robust t"


def test_the_interval_matches_the_sandwich_matrices(t_bisected: Callable[[Any, Any], Any]) -> None:
    """The sandwich by matrices; the added halves are rows and clusters too."""
    rng = np.random.default_rng(75)
    points, longer_by, order = judged(rng, 60, 0.5, 1.0, 0.5)
    clusters = np.concatenate([np.arange(15), rng.integers(0, 15, 45)])
    at = np.array(brute(points, longer_by, order))
    x = np.column_stack([np.ones(60), np.tanh(longer_by / longer_by.std(ddof=1)), order])
    bread, meat = np.zeros((3, 3)), np.zeros((3, 3))
    for row in [*x, *np.eye(3)]:
        bread += np.outer(row, row) * chance(row @ at) * chance(-row @ at)
    for cluster in range(15):
        score = (x * (points - chance(x @ at))[:, None])[clusters == cluster].sum(axis=0)
        meat += np.outer(score, score) * 15 / 14 * 59 / 57
    meat += np.diag((0.5 - chance(at)) ** 2)
    errors = np.sqrt(np.diag(np.linalg.inv(bread) @ meat @ np.linalg.inv(bread)))
    halves = float(t_bisected(0.9, 14.0)) * errors
    result = length_controlled(points, longer_by, clusters.tolist(), order=order, confidence_level=0.9)
    assert (result.low, result.high) == pytest.approx((chance(at[0] - halves[0]), chance(at[0] + halves[0])), abs=1e-5)
    assert (result.n, result.n_clusters, result.confidence_level) == (60, 15, 0.9)


def test_a_judge_that_only_prefers_length_gives_a_rate_of_one_half() -> None:
    points, longer_by, _ = judged(np.random.default_rng(76), 1500, 0.0, 3.0)
    result = length_controlled(points, longer_by)
    assert points.mean() > 0.68
    assert result.rate == pytest.approx(0.5, abs=0.06)
    assert result.low is not None and result.high is not None and result.low < 0.5 < result.high


def test_a_judge_indifferent_to_length_leaves_the_rate_unchanged() -> None:
    points, longer_by, _ = judged(np.random.default_rng(77), 1500, 0.8, 0.0)
    result = length_controlled(points, longer_by)
    assert result.rate == pytest.approx(points.mean(), abs=0.03)


def test_length_can_mask_a_better_candidate() -> None:
    points, longer_by, _ = judged(np.random.default_rng(78), 1500, 0.8, 2.0, longer=-0.8)
    result = length_controlled(points, longer_by)
    assert points.mean() < 0.5
    assert result.rate == pytest.approx(chance(0.8), abs=0.06) and result.low is not None and result.low > 0.5


def test_order_is_controlled_for_only_if_it_varies() -> None:
    rng = np.random.default_rng(79)
    longer_by, order = rng.normal(0, 50, 2000), rng.choice([1.0, -1.0, 0.0], 2000, p=[0.8, 0.1, 0.1])
    points = (rng.random(2000) < chance(0.3 + 1.5 * order)).astype(float)
    assert length_controlled(points, longer_by, order=order).rate == pytest.approx(chance(0.3), abs=0.05)
    blind = length_controlled(points, longer_by)
    assert blind.rate is not None and blind.rate > 0.7
    assert length_controlled(points, longer_by, order=np.ones(2000)) == blind


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e150])
def test_the_unit_of_length_does_not_matter(unit: float) -> None:
    points, longer_by, _ = judged(np.random.default_rng(80), 50, 0.5, 1.0)
    original, other = length_controlled(points, longer_by), length_controlled(points, unit * longer_by)
    assert (original.rate, original.low, original.high) == pytest.approx((other.rate, other.low, other.high), abs=1e-9)


def test_half_a_win_and_a_loss_keep_estimates_finite() -> None:
    rng = np.random.default_rng(81)
    longer_by = rng.normal(0, 10, 100)
    all_won, by_length = length_controlled(np.ones(100), longer_by), length_controlled(longer_by > 0, longer_by)
    assert all_won.rate is not None and 0.98 < all_won.rate < 1 and all_won.low is not None
    assert 0.93 < all_won.low < 0.98, "Wilson's is 0.963"
    assert by_length.low is not None and by_length.high is not None and by_length.low < 0.5 < by_length.high


def test_equal_lengths_give_the_plain_rate() -> None:
    result = length_controlled([1.0] * 9 + [0.0] * 4 + [0.5], [0.0] * 14)
    assert result.rate == pytest.approx((9.5 + 0.5) / 15)
    assert result.low is not None and result.high is not None and result.low < 0.5 < 0.85 < result.high
    assert result.reason is None


@pytest.mark.parametrize(
    ("points", "longer_by", "clusters", "order", "rated", "said"),
    [
        ([], [], None, None, False, "no comparisons: a rate needs at least 1"),
        ([1, 0], [3, 3], None, None, False, "all length differences are 3: their effect cannot be estimated"),
        ([1, 0, 1], [3, -3, 3], None, [1, -1, 1], False, "length and order always go together"),
        ([1, 0, 1], [60, 63, 66], None, None, False, "the same side is always longer: the rate at equal length"),
        ([1], [0], None, None, True, "1 comparison: an interval needs at least 2"),
        ([1, 0, 1], [3, -2, 1], "aaa", None, True, "all 3 comparisons are in one cluster"),
        ([1, 0, 1], [3, -2, 1], None, None, True, "3 comparisons: an interval needs at least 10"),
        ([1, 0, 1] * 4, [3, -2, 1] * 4, "abcd" * 3, None, True, "4 clusters: an interval needs at least 10"),
        ([0.5] * 12, [*range(12)], None, None, True, "the points of all 12 clusters are fitted exactly"),
    ],
)
def test_missing_estimates_have_a_reason(
    points: Any, longer_by: Any, clusters: Any, order: Any, rated: bool, said: str
) -> None:
    result = length_controlled(points, longer_by, clusters, order=order)
    assert (result.rate is not None) == rated
    assert (result.low, result.high) == (None, None)
    assert result.reason is not None and result.reason.startswith(said)


@settings(deadline=None)
@given(st.lists(ROW, max_size=40), st.booleans(), st.booleans())
def test_the_rates_of_both_sides_add_up_to_1(rows: list[Any], clustered: bool, ordered: bool) -> None:
    points, longer_by, clusters, order = ([row[k] for row in rows] for k in range(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        original, other = (
            length_controlled(
                [won if sign > 0 else 1 - won for won in points],
                [sign * longer for longer in longer_by],
                clusters if clustered else None,
                order=[sign * shown for shown in order] if ordered else None,
            )
            for sign in (1, -1)
        )
    assert (original.low is None) == (original.high is None) == (original.reason is not None)
    assert (original.rate is None) == (other.rate is None) and (original.low is None) == (other.low is None)
    if original.rate is not None and other.rate is not None:
        assert 0 < original.rate < 1 and original.rate == pytest.approx(1 - other.rate, abs=1e-8)
    if original.low is not None and original.high is not None and original.rate is not None:
        assert 0 <= original.low < original.rate < original.high <= 1
        assert (1 - original.high, 1 - original.low) == pytest.approx((other.low, other.high), abs=1e-7)


def coverage(clusters: list[int], quality: float, together: float, runs: int) -> float:
    """Return how often the intervals contain the rate; part of the variance is shared within clusters."""
    rng, held = np.random.default_rng(82), 0
    for _ in range(runs):
        n, longer_by = len(clusters), rng.normal(50, 100, len(clusters))
        order = rng.choice([-1.0, 1.0], n)
        share = chance(quality + np.tanh(longer_by / longer_by.std(ddof=1)) + 0.4 * order)
        of_cluster = rng.normal(size=max(clusters) + 1)[clusters]
        luck = together**0.5 * of_cluster + (1 - together) ** 0.5 * rng.normal(size=n)
        won = np.vectorize(math.erfc)(-luck / 2**0.5) / 2 < share
        result = length_controlled(won, longer_by, clusters, order=order)
        assert result.low is not None and result.high is not None
        held += result.low <= chance(quality) <= result.high
    return held / runs


@pytest.mark.parametrize(("quality", "least"), [(0.0, 0.92), (1.5, 0.9)])
@pytest.mark.parametrize(("count", "size", "together"), [(60, 1, 0.0), (50, 4, 0.5)])
def test_intervals_cover_the_rate(count: int, size: int, together: float, quality: float, least: float) -> None:
    assert coverage(np.repeat(np.arange(count), size).tolist(), quality, together, 300) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "size", "together", "least"), [(10, 4, 0.5, 0.87), (20, 4, 0.5, 0.91), (100, 3, 0.5, 0.93)]
)
@pytest.mark.parametrize("quality", [0.0, 1.5])
def test_intervals_cover_the_rate_in_long_simulations(
    count: int, size: int, together: float, least: float, quality: float
) -> None:
    assert coverage(np.repeat(np.arange(count), size).tolist(), quality, together, 2000) >= least


@pytest.mark.parametrize(
    ("points", "longer_by", "settings", "said"),
    [
        ([1.5], [0], {}, r"points\[0\]: got 1.5, wanted 0 to 1"),
        ([float("nan")], [0], {}, "points"),
        ([1], [float("inf")], {}, "longer_by"),
        ([1], [0, 1], {}, "longer_by: got 2 values, wanted 1, as many as points"),
        ([1], [0], {"order": [1, 1]}, "order: got 2"),
        ([1, 0], [0, 1], {"order": [1, 2]}, r"order\[1\]: got 2.0, wanted 1, -1 or 0"),
        ([1], [0], {"clusters": "ab"}, "clusters: got 2"),
        ([1], [0], {"confidence_level": 95}, "confidence_level"),
        ([[1]], [0], {}, "shape"),
    ],
)
def test_bad_input_is_refused(points: Any, longer_by: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        length_controlled(points, longer_by, **settings)
