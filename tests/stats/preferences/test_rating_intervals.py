"""bradley_terry: bootstrap intervals against separate refits, and their coverage by simulation."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_pairs import JUDGEMENT, clustered_judgements, maximised_ratings, random_judgements

from evalflows.stats import Ratings, bradley_terry


def percentiles(judged: Sequence[Any], items: list[int], entries: int, draws: int, **settings: Any) -> Any:
    """Return percentiles of ratings from separate scipy fits to resampled items."""
    rng, count = np.random.default_rng(42), max(items) + 1
    of_item = [np.flatnonzero(np.array(items) == item) for item in range(count)]
    drawn = [np.concatenate([of_item[item] for item in rng.integers(0, count, count)]) for _ in range(draws)]
    result = [maximised_ratings([np.asarray(each)[rows] for each in judged], entries, **settings) for rows in drawn]
    return np.quantile(result, [0.1, 0.9], axis=0)


def test_intervals_match_percentiles_of_separate_refits() -> None:
    judged: Any = clustered_judgements([-0.5, 0, 0.5], 30, 0.3, np.random.default_rng(43))
    result = bradley_terry(*judged, entries=3, confidence_level=0.8, order_term=True, resamples=4000)
    low, high = percentiles(judged[:3], judged[3], 3, 120, order_term=True)
    assert result.lows is not None and result.highs is not None
    assert [*result.lows, result.order_low] == pytest.approx(low, abs=0.09)
    assert [*result.highs, result.order_high] == pytest.approx(high, abs=0.09)


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


def test_winning_all_50_gives_about_the_jeffreys_interval() -> None:
    """Beta(50.5, 0.5) has 2.5 % below 0.95121 and above 0.99999022 (scipy): odds of e to the 2.97 and 11.5."""
    result = bradley_terry([0] * 50, [1] * 50, [1] * 50, entries=2, resamples=20_000)
    assert result.lows is not None and result.highs is not None
    assert 2 * result.lows[0] == pytest.approx(2.97, abs=0.1)
    assert 2 * result.highs[0] == pytest.approx(11.54, abs=0.5)


@pytest.mark.parametrize("weight", [1e-200, 1e-9, 1e9, 1e20, 1e50, 1e150, 1e199])
def test_weights_of_any_size_give_ratings_or_a_reason(weight: float) -> None:
    judged = [0, 1, 2, 0, 1, 2], [1, 2, 0, 2, 0, 1], [1, 1, 0, 1, 0, 1]
    for weights in ([weight] * 6, [1, 1, 1, 1, 1, weight]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = bradley_terry(*judged, entries=3, weights=weights, order_term=True, resamples=50)
        assert_whole(result, 3)
        assert result.ratings is not None or result.reason == "the likelihood maximisation did not converge"


def test_a_seed_determines_the_interval_and_another_hardly_changes_it() -> None:
    judged: Any = clustered_judgements([-0.5, 0, 0.5], 60, 0.0, np.random.default_rng(45))
    original, same, other = (bradley_terry(*judged, entries=3, seed=seed) for seed in (1, 1, 2))
    assert original == same and original.lows != other.lows and original.ratings == other.ratings
    assert original.lows == pytest.approx(other.lows, abs=0.06)
    assert (original.seed, original.resamples, original.confidence_level, original.n, original.n_clusters) == (
        1,
        1000,
        0.95,
        360,
        60,
    )


def test_intervals_widen_with_the_confidence_level() -> None:
    judged: Any = clustered_judgements([-0.5, 0, 0.5], 20, 0.2, np.random.default_rng(46))
    wide, narrow = (
        bradley_terry(*judged, entries=3, order_term=True, confidence_level=confidence_level)
        for confidence_level in (0.99, 0.8)
    )
    for name, way in (("lows", 1), ("highs", -1)):
        assert np.all(way * np.subtract(getattr(narrow, name), getattr(wide, name)) > 0)
    assert wide.order_low < narrow.order_low < narrow.order_high < wide.order_high  # type: ignore[operator]


def test_batches_of_resamples_give_the_same_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: Any = clustered_judgements([-0.5, 0, 0.5], 20, 0.2, np.random.default_rng(47))
    whole = bradley_terry(*judged, entries=3, resamples=50)
    monkeypatch.setattr("evalflows.stats.preferences.strengths.MAX_BLOCK_SIZE", 140)  # seven resamples of 20 items
    assert bradley_terry(*judged, entries=3, resamples=50) == whole


@pytest.mark.parametrize(
    ("judged", "clusters", "said"),
    [
        (([0], [1], [1]), None, "1 judgement: an interval needs at least 2"),
        (([0, 1], [1, 0], [1, 1]), "aa", "all 2 judgements are in one cluster: an interval needs at least 2"),
    ],
)
def test_a_missing_interval_has_a_reason(judged: Any, clusters: Any, said: str) -> None:
    first, second, points = judged
    result = bradley_terry(first, second, points, clusters, entries=2)
    assert result.ratings is not None
    assert (result.lows, result.highs, result.seed, result.resamples) == (None, None, None, None)
    assert result.reason is not None and result.reason.startswith(said)


def assert_whole(result: Ratings, entries: int) -> None:
    """Assert one finite float per entry, or a reason."""
    for each in (result.ratings, result.lows, result.highs):
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
            resamples=50,
        )
    assert_whole(result, 4)
    connected = {0}
    for _ in range(4):
        connected |= {entry for pair in zip(first, second, strict=True) if connected & {*pair} for entry in pair}
    assert (result.ratings is not None) == (len(connected) == 4)


def coverage(strengths: Sequence[float], items: int, order: float, runs: int, **settings: Any) -> tuple[float, float]:
    """Return how often intervals contain a rating, and how often the order effect; clusters are items."""
    rng, truth = np.random.default_rng(48), np.subtract(strengths, np.mean(strengths))
    held, order_held = 0.0, 0
    for seed in range(runs):
        judged: Any = clustered_judgements(strengths, items, order, rng)
        weights = np.full(len(judged[0]), 0.5)
        result = bradley_terry(*judged, entries=4, weights=weights, order_term=True, seed=seed, **settings)
        assert result.lows is not None and result.order_low is not None and result.order_high is not None
        held += float(np.mean((np.array(result.lows) <= truth) & (truth <= np.array(result.highs))))
        order_held += result.order_low <= order <= result.order_high
    return held / runs, order_held / runs


def test_intervals_cover_the_ratings() -> None:
    of_ratings, of_order = coverage([-0.6, -0.2, 0.2, 0.6], 40, 0.4, 200, resamples=300)
    assert of_ratings >= 0.91 and of_order >= 0.9


def test_intervals_cover_when_some_win_or_lose_almost_everything() -> None:
    """If the added halves were not drawn, the strongest and weakest would be covered in only half of the runs."""
    assert coverage([-4.0, 0.0, 0.5, 3.0], 20, 0.0, 200, resamples=300)[0] >= 0.9


def test_intervals_without_clusters_do_not_cover() -> None:
    """The judgements of an item share its answers, so they are dependent."""
    rng, truth, held = np.random.default_rng(49), np.array([-0.6, -0.2, 0.2, 0.6]), 0.0
    for _ in range(100):
        first, second, points, _ = clustered_judgements(truth.tolist(), 40, 0.0, rng)
        result = bradley_terry(first, second, points, entries=4, resamples=200)
        assert result.lows is not None and result.highs is not None
        held += float(np.mean((np.array(result.lows) <= truth) & (truth <= np.array(result.highs))))
    assert held / 100 < 0.85


@pytest.mark.slow
@pytest.mark.parametrize(("items", "least"), [(10, 0.89), (20, 0.92), (50, 0.93), (100, 0.935)])
@pytest.mark.parametrize("strengths", [[-0.6, -0.2, 0.2, 0.6], [-4.0, 0.0, 0.5, 3.0]], ids=["even", "uneven"])
def test_intervals_cover_the_ratings_in_long_simulations(strengths: list[float], items: int, least: float) -> None:
    of_ratings, of_order = coverage(strengths, items, 0.4, 1000, resamples=500)
    assert of_ratings >= least - 0.03 * (max(strengths) > 1 and items < 20) and of_order >= least - 0.02
