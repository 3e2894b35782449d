"""bradley_terry: intervals against explicit matrices, and their coverage by simulation."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_pairs import JUDGEMENT, clustered_judgements, random_judgements
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from evalflows.stats import Ratings, bradley_terry


@pytest.mark.parametrize("clustered", [False, True])
def test_the_covariance_matches_explicit_matrices(clustered: bool) -> None:
    """The sandwich term by term, with the pseudo-inverse of the information of all ratings and the order effect."""
    rng = np.random.default_rng(43)
    first, second, points = random_judgements(rng, 4, 60, order=0.5)
    weights, items = rng.choice([0.5, 1.0], 60), rng.integers(0, 25, 60) if clustered else np.arange(60)
    result = bradley_terry(
        first, second, points, items.tolist() if clustered else None, entries=4, weights=weights, confidence_level=0.9
    )
    assert result.ratings is not None and result.order_effect is not None and result.guarded == ()
    at = np.array([*result.ratings, result.order_effect])
    x = np.column_stack([np.eye(4)[first] - np.eye(4)[second], np.ones(60)])
    p = 1 / (1 + np.exp(-x @ at))
    inverse = np.linalg.pinv(np.einsum("n,ni,nj", weights * p * (1 - p), x, x))
    of_pair: dict[Any, float] = {}
    keys = [(item, *sorted(pair)) for item, *pair in zip(items, first, second, strict=True)]
    for key, row, share in zip(keys, x, weights * p * (1 - p), strict=True):
        of_pair[key] = of_pair.get(key, 0.0) + share * row @ inverse @ row
    leverages = np.array([of_pair[key] for key in keys])
    scores = x * (weights * (points - p) / np.sqrt(1 - leverages))[:, None]
    sums = [scores[items == item].sum(axis=0) for item in np.unique(items)]
    count = len(sums)
    covariance = inverse @ sum(np.outer(each, each) for each in sums) @ inverse * count / (count - 1)
    assert result.covariance == pytest.approx(covariance[:4, :4], abs=1e-8)
    assert result.standard_errors == pytest.approx(np.sqrt(np.diag(covariance))[:4], abs=1e-8)
    assert result.order_standard_error == pytest.approx(np.sqrt(covariance[4, 4]), abs=1e-8)
    half = float(stats.t.ppf(0.95, count - 1)) * np.sqrt(np.diag(covariance))
    assert [*(result.lows or ()), result.order_low] == pytest.approx(at - half, abs=1e-7)
    assert [*(result.highs or ()), result.order_high] == pytest.approx(at + half, abs=1e-7)


@pytest.mark.slow
def test_standard_errors_are_those_of_repeated_tournaments() -> None:
    rng, truth = np.random.default_rng(44), np.array([-0.8, -0.1, 0.1, 0.8])
    found = []
    for _ in range(150):
        judged: Any = clustered_judgements(truth.tolist(), 40, 0.3, rng)
        result = bradley_terry(*judged, entries=4)
        difference = result.difference(3, 1)
        found.append((*(result.ratings or ()), difference.difference, *(result.standard_errors or ())))
        assert difference.low is not None and difference.high is not None and difference.difference is not None
        assert difference.low < difference.difference < difference.high
    spread, errors = np.std(found, axis=0)[:4], np.mean(found, axis=0)[5:]
    assert errors == pytest.approx(spread, rel=0.2)


def test_differences_of_two_ratings_have_their_covariance() -> None:
    judged: Any = random_judgements(np.random.default_rng(45), 4, 90)
    result = bradley_terry(*judged, entries=4)
    assert result.ratings is not None and result.covariance is not None
    v = np.array(result.covariance)
    difference, back = result.difference(0, 2), result.difference(2, 0)
    assert difference.difference == result.ratings[0] - result.ratings[2]
    assert difference.standard_error == pytest.approx(math.sqrt(v[0, 0] + v[2, 2] - 2 * v[0, 2]))
    assert (back.low, back.high) == pytest.approx((-difference.high, -difference.low))  # type: ignore[operator]
    apart = bradley_terry([0], [1], [1], entries=3)
    assert apart.difference(0, 1).difference is None
    one = bradley_terry([0], [1], [0.7], entries=2).difference(0, 1)
    assert one.difference == pytest.approx(math.log(7 / 3)) and one.low is None


def test_copies_within_an_item_do_not_narrow_intervals() -> None:
    rng = np.random.default_rng(44)
    judged: Any = random_judgements(rng, 3, 60)
    once = bradley_terry(*judged, entries=3)
    first, second, points = (np.tile(each, 10) for each in judged)
    together = bradley_terry(first, second, points, [*range(60)] * 10, entries=3, weights=np.full(600, 0.1))
    apart = bradley_terry(first, second, points, entries=3)
    assert together.lows == pytest.approx(once.lows, abs=1e-7)
    assert together.highs == pytest.approx(once.highs, abs=1e-7)
    assert np.subtract(apart.highs, apart.lows).max() < 0.5 * np.subtract(once.highs, once.lows).min()  # type: ignore[arg-type]


def test_winning_everything_has_a_wide_interval_that_narrows_with_wins() -> None:
    """The residuals are almost 0, but an entry that won all of 50 may be better by more than its rating says."""
    results = [bradley_terry([0] * n, [1] * n, [1] * n, entries=2).difference(0, 1) for n in (5, 20, 50)]
    lows, highs = ([getattr(result, end) for result in results] for end in ("low", "high"))
    assert lows == sorted(lows) and lows[0] < 0 < 1 < lows[2] < math.log(0.951 / 0.049), "below Jeffreys's"
    assert all(high > math.log(n) for high, n in zip(highs, (5, 20, 50), strict=True))
    copies = bradley_terry([0] * 50, [1] * 50, [1] * 50, [*range(5)] * 10, entries=2, weights=[0.1] * 50)
    assert copies.lows == pytest.approx(bradley_terry([0] * 5, [1] * 5, [1] * 5, entries=2).lows, abs=1e-7)


@pytest.mark.parametrize("weight", [1e-200, 1e-9, 1e9, 1e20, 1e50, 1e150, 1e199])
def test_weights_of_any_size_give_ratings_or_a_reason(weight: float) -> None:
    judged = [0, 1, 2, 0, 1, 2], [1, 2, 0, 2, 0, 1], [1, 1, 0, 1, 0, 1]
    for weights in ([weight] * 6, [1, 1, 1, 1, 1, weight]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = bradley_terry(*judged, entries=3, weights=weights, order_term=True)
        assert_whole(result, 3)
        assert result.ratings is not None or result.reason == "the likelihood maximisation did not converge"
        assert result.lows is not None or result.reason is not None


def test_intervals_widen_with_the_confidence_level() -> None:
    judged: Any = clustered_judgements([-0.5, 0, 0.5], 20, 0.2, np.random.default_rng(46))
    wide, narrow = (
        bradley_terry(*judged, entries=3, order_term=True, confidence_level=confidence_level)
        for confidence_level in (0.99, 0.8)
    )
    for name, way in (("lows", 1), ("highs", -1)):
        assert np.all(way * np.subtract(getattr(narrow, name), getattr(wide, name)) > 0)
    assert wide.order_low < narrow.order_low < narrow.order_high < wide.order_high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("judged", "clusters", "said"),
    [
        (([0], [1], [1]), None, "1 judgement: an interval needs at least 2"),
        (([0, 1, 1], [1, 2, 0], [0.5, 0.5, 0.5]), None, "all points are fitted exactly: no variation"),
        (([0, 1], [1, 0], [1, 1]), "aa", "all 2 judgements are in one cluster: an interval needs at least 2"),
    ],
)
def test_a_missing_interval_has_a_reason(judged: Any, clusters: Any, said: str) -> None:
    result = bradley_terry(*judged, clusters, entries=max(judged[1]) + 1)
    assert result.ratings is not None
    assert (result.lows, result.highs, result.standard_errors, result.df) == (None, None, None, None)
    assert result.reason is not None and result.reason.startswith(said)


def assert_whole(result: Ratings, entries: int) -> None:
    """Assert one finite float per entry, or a reason."""
    for each in (result.ratings, result.lows, result.highs, result.standard_errors):
        assert each is None or (len(each) == entries and all(type(x) is float and math.isfinite(x) for x in each))
    assert (result.lows is None) == (result.highs is None) == (result.reason is not None)
    assert (result.order_low is None) == (result.order_high is None) == (result.order_reason is not None)
    assert result.ratings is not None or result.lows is None


@settings(deadline=None)
@given(st.lists(st.tuples(JUDGEMENT, st.sampled_from([1e-3, 0.5, 1.0, 1e4])), max_size=25), st.booleans())
def test_any_judgements_give_finite_ratings_or_a_reason(rows: list[Any], order_term: bool) -> None:
    judged = [(*pair, won, key, weight) for (pair, won, key), weight in rows]
    first, second, points, clusters, weights = zip(*judged, strict=True) if judged else [()] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bradley_terry(
            first,
            second,
            points,
            clusters,
            entries=4,
            weights=weights,
            order_term=order_term,
        )
    assert_whole(result, 4)
    connected = {0}
    for _ in range(4):
        connected |= {entry for pair in zip(first, second, strict=True) if connected & {*pair} for entry in pair}
    assert (result.ratings is not None) == (len(connected) == 4)


def coverage(strengths: Sequence[float], items: int, order: float, runs: int) -> tuple[float, float]:
    """Return how often intervals contain a rating, and how often the order effect; clusters are items."""
    rng, truth = np.random.default_rng(48), np.subtract(strengths, np.mean(strengths))
    held, order_held = 0.0, 0
    for _ in range(runs):
        judged: Any = clustered_judgements(strengths, items, order, rng)
        weights = np.full(len(judged[0]), 0.5)
        result = bradley_terry(*judged, entries=4, weights=weights, order_term=True)
        assert result.lows is not None and result.order_low is not None and result.order_high is not None
        held += float(np.mean((np.array(result.lows) <= truth) & (truth <= np.array(result.highs))))
        order_held += result.order_low <= order <= result.order_high
    return held / runs, order_held / runs


@pytest.mark.slow
def test_intervals_cover_the_ratings() -> None:
    of_ratings, of_order = coverage([-0.6, -0.2, 0.2, 0.6], 40, 0.4, 200)
    assert of_ratings >= 0.91 and of_order >= 0.9


@pytest.mark.slow
def test_intervals_cover_when_some_win_or_lose_almost_everything() -> None:
    assert coverage([-4.0, 0.0, 0.5, 3.0], 20, 0.0, 200)[0] >= 0.9


def test_intervals_without_clusters_do_not_cover() -> None:
    """The judgements of an item share its answers, so they are dependent."""
    rng, truth, held = np.random.default_rng(49), np.array([-0.6, -0.2, 0.2, 0.6]), 0.0
    for _ in range(100):
        first, second, points, _ = clustered_judgements(truth.tolist(), 40, 0.0, rng)
        result = bradley_terry(first, second, points, entries=4)
        assert result.lows is not None and result.highs is not None
        held += float(np.mean((np.array(result.lows) <= truth) & (truth <= np.array(result.highs))))
    assert held / 100 < 0.85


@pytest.mark.slow
@pytest.mark.parametrize(("items", "least"), [(10, 0.89), (20, 0.92), (50, 0.93), (100, 0.935)])
@pytest.mark.parametrize("strengths", [[-0.6, -0.2, 0.2, 0.6], [-4.0, 0.0, 0.5, 3.0]], ids=["even", "uneven"])
def test_intervals_cover_the_ratings_in_long_simulations(strengths: list[float], items: int, least: float) -> None:
    of_ratings, of_order = coverage(strengths, items, 0.4, 1000)
    assert of_ratings >= least - 0.03 * (max(strengths) > 1 and items < 20) and of_order >= least - 0.02
