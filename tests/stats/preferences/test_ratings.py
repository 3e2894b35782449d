"""bradley_terry: ratings against choix and likelihoods written out, intervals that cover, and who has no rating."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import permutations
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

from evalflows.stats import Ratings, bradley_terry

JUDGEMENT = st.tuples(
    st.sampled_from([*permutations(range(4), 2)]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from("abcdef")
)


def played(rng: np.random.Generator, entries: int, n: int, order: float = 0.0, ties: float = 0.2) -> tuple[Any, ...]:
    """n judgements of random pairs in random order: first, second, points."""
    strengths = rng.normal(0, 1, entries)
    first, second = np.array([rng.choice(entries, 2, replace=False) for _ in range(n)]).T
    won = rng.random(n) < 1 / (1 + np.exp(-(strengths[first] - strengths[second] + order)))
    return first, second, np.where(rng.random(n) < ties, 0.5, won)


def brute(judged: Sequence[Any], entries: int, weights: Any = None, *, order_term: bool = False) -> list[float]:
    """The ratings with a mean of 0, and the order effect last: a likelihood written out, kind by kind."""
    rows = list(zip(*(np.asarray(each).tolist() for each in judged), strict=True))
    counts: Counter[tuple[int, int, float]] = Counter()
    for row, weight in zip(rows, [1.0] * len(rows) if weights is None else weights, strict=True):
        counts[row] += weight
    met = {(min(i, j), max(i, j)) for i, j, _ in rows}

    def log_p(x: Any) -> float:
        return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))

    def lost(at: Any) -> Any:
        ratings, order = at[:entries], at[entries] if order_term else 0.0
        total = 0.0
        for (i, j, points), weight in counts.items():
            x = ratings[i] - ratings[j] + order
            total += weight * (points * log_p(x) + (1 - points) * log_p(-x))
        total += sum(log_p(ratings[i] - ratings[j]) / 2 + log_p(ratings[j] - ratings[i]) / 2 for i, j in met)
        total += log_p(order) / 2 + log_p(-order) / 2
        return -total + sum(ratings) ** 2  # which is 0 at the maximum, where their mean is

    found = minimize(lost, np.zeros(entries + order_term), method="BFGS", options={"gtol": 1e-7}).x
    return [*(found[:entries] - found[:entries].mean()), *found[entries:]]


def shuttled(strengths: Sequence[float], items: int, order: float, rng: np.random.Generator) -> tuple[Any, ...]:
    """All pairs in both orders on each of so many items, on each of which the answers are good or bad: with clusters.

    The share of wins is that of the model, but half of the chance that makes them is the items'.
    """
    pairs = np.array(list(permutations(range(len(strengths)), 2)))
    first, second = np.tile(pairs.T, items)
    item = np.repeat(np.arange(items), len(pairs))
    answers = rng.normal(size=(items, len(strengths)))
    luck = (answers[item, first] - answers[item, second]) / 2 + rng.normal(0, 0.5**0.5, len(first))
    above = np.vectorize(math.erfc)(-luck / 2**0.5) / 2
    r = np.asarray(strengths)
    won = above < 1 / (1 + np.exp(-(r[first] - r[second] + order)))
    return first, second, won.astype(float), item.tolist()


# Ratings


@pytest.mark.parametrize("seed", range(20))
def test_ratings_match_choix_with_half_a_win_added_each_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(3, 8))
    judged = played(rng, entries, 40 * entries)
    wins: list[tuple[int, int]] = []
    for i, j, points in zip(*(each.tolist() for each in judged), strict=True):
        # A tie is both orders once, so that all other judgements are there twice.
        wins += [(i, j), (j, i)] if points == 0.5 else [(i, j) if points else (j, i)] * 2
    met = {(min(pair), max(pair)) for pair in wins}
    wins += [*met, *((j, i) for i, j in met)]
    found = bradley_terry(*judged, entries=entries, resamples=1)
    assert found.ratings == pytest.approx(choix.opt_pairwise(entries, wins, alpha=0.0, tol=1e-9), abs=1e-3)
    assert found.ratings == pytest.approx(choix.ilsr_pairwise(entries, wins, alpha=0.0), abs=1e-3)
    assert sum(found.ratings or ()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("order_term", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_maximises_the_explicit_likelihood(seed: int, order_term: bool) -> None:
    rng = np.random.default_rng(100 + seed)
    judged, weights = played(rng, 4, 60, order=0.7), rng.choice([0.5, 1.0, 2.0], 60)
    found = bradley_terry(*judged, entries=4, weights=weights, resamples=1, order_term=order_term)
    assert found.ratings is not None
    ours = [*found.ratings, *([found.order_effect] if order_term else [])]
    assert ours == pytest.approx(brute(judged, 4, weights, order_term=order_term), abs=1e-5)


def test_ratings_of_two_entries_are_their_log_odds() -> None:
    """0 has 3 wins and a tie of 5: with the added halves the odds are 4 to 2."""
    judged = [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [1, 0, 1, 0.5, 0]
    found = bradley_terry(*judged, entries=2, resamples=1).ratings
    assert found == pytest.approx((math.log(4 / 2) / 2, -math.log(4 / 2) / 2))


def test_an_entry_that_wins_everything_has_a_rating() -> None:
    judged = [2, 2, 0, 0, 1, 2], [0, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 1]
    found = bradley_terry(*judged, entries=3)
    assert found.ratings is not None and found.lows is not None and found.highs is not None
    assert found.ratings[2] > 0.8 > 0 > max(found.ratings[:2])
    assert found.ratings == pytest.approx(brute(judged, 3), abs=1e-5)
    assert all(low < rating < high for low, rating, high in zip(found.lows, found.ratings, found.highs, strict=True))


def test_the_rating_of_a_constant_winner_grows_with_its_wins() -> None:
    found = [bradley_terry([0] * n, [1] * n, [1] * n, entries=2).ratings for n in (1, 5, 50)]
    assert [each[0] * 2 for each in found if each] == pytest.approx([math.log((n + 0.5) / 0.5) for n in (1, 5, 50)])


def test_unconnected_entries_have_no_ratings() -> None:
    found = bradley_terry([0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 1, 3], [1, 1, 0, 1, 0, 0.5], entries=4)
    assert (found.ratings, found.lows, found.seed, found.resamples) == (None, None, None, None)
    assert found.reason == "entries 0 and 2 are not connected by comparisons: no common scale"
    linked = bradley_terry([0, 1, 2, 3, 0, 2, 1], [1, 0, 3, 2, 1, 3, 2], [1, 1, 0, 1, 0, 0.5, 0], entries=4)
    assert linked.ratings is not None
    left_out = bradley_terry([0, 1], [1, 0], [1, 1], entries=3)
    assert left_out.reason == "entries 0 and 2 are not connected by comparisons: no common scale"
    assert bradley_terry([], [], [], entries=2).reason == "no judgements: ratings need at least 1"


@settings(deadline=None)
@given(st.lists(JUDGEMENT, min_size=1, max_size=25), st.permutations(range(4)), st.booleans())
def test_renumbering_entries_does_not_change_their_ratings(
    rows: list[Any], numbers: list[int], order_term: bool
) -> None:
    (first, second), points = np.array([pair for pair, *_ in rows]).T, [won for _, won, _ in rows]
    again = np.array(numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = (
            bradley_terry(*sides, points, entries=4, order_term=order_term, resamples=1)
            for sides in ((first, second), (again[first], again[second]))
        )
    assert (one.ratings is None) == (other.ratings is None)
    if one.ratings is not None and other.ratings is not None:
        assert one.ratings == pytest.approx([other.ratings[number] for number in numbers], abs=1e-7)
        assert one.order_effect == pytest.approx(other.order_effect, abs=1e-7)


@settings(deadline=None)
@given(st.lists(JUDGEMENT, max_size=25), st.lists(st.booleans(), min_size=25, max_size=25))
def test_without_an_order_term_the_order_does_not_matter(rows: list[Any], turned: list[bool]) -> None:
    one, other = (
        [(pair[::-1], 1 - won) if turn else (pair, won) for (pair, won, _), turn in zip(rows, turns, strict=False)]
        for turns in ([False] * 25, turned)
    )
    found, same = (
        bradley_terry(
            [pair[0] for pair, _ in some],
            [pair[1] for pair, _ in some],
            [won for _, won in some],
            [key for *_, key in rows],
            entries=4,
            resamples=20,
        )
        for some in (one, other)
    )
    assert found == same


def test_weights_count_like_repeated_judgements() -> None:
    rng = np.random.default_rng(40)
    times, items = rng.integers(1, 4, 50), list(range(50))
    judged: Any = (*played(rng, 4, 50), items)
    weighed = bradley_terry(*judged, entries=4, weights=times)
    repeated = bradley_terry(*[np.repeat(each, times).tolist() for each in judged], entries=4)
    for name in ("ratings", "lows", "highs"):
        assert getattr(weighed, name) == pytest.approx(getattr(repeated, name), abs=1e-9)


# The order


def test_position_bias_is_estimated() -> None:
    judged: Any = shuttled([-1, 0, 0.2, 0.8], 400, 0.9, np.random.default_rng(41))
    found = bradley_terry(*judged, entries=4, order_term=True)
    assert found.ratings == pytest.approx((-1, 0, 0.2, 0.8), abs=0.2)
    assert found.order_effect == pytest.approx(0.9, abs=0.1)
    assert found.order_low is not None and 0.7 < found.order_low < found.order_effect  # type: ignore[operator]
    assert found.order_high is not None and found.order_effect < found.order_high < 1.1  # type: ignore[operator]
    assert (found.order_reason, found.method) == (
        None,
        "bradley-terry with an order term; cluster bootstrap percentiles",
    )


def test_the_order_term_removes_position_bias_from_ratings() -> None:
    """Two equals; 0 was first 90 times of 100, and the first wins 3 times of 4."""
    judged = [0] * 90 + [1] * 10, [1] * 90 + [0] * 10, [1, 1, 1, 0] * 25
    blind, seeing = (bradley_terry(*judged, entries=2, order_term=yes, resamples=1).ratings for yes in (False, True))
    assert blind is not None and blind[0] - blind[1] > 0.7
    assert seeing is not None and abs(seeing[0] - seeing[1]) < 0.2


def test_an_order_that_decides_everything_has_a_finite_effect() -> None:
    judged = [0, 1, 2, 1, 2, 0] * 5, [1, 0, 1, 2, 0, 2] * 5, [1] * 30
    found = bradley_terry(*judged, entries=3, order_term=True)
    assert found.ratings == pytest.approx((0, 0, 0), abs=1e-9)
    assert found.order_effect == pytest.approx(math.log(30.5 / 0.5)) and found.order_low is not None


def test_pairs_in_one_order_do_not_identify_the_order_effect() -> None:
    judged = [0, 0, 1, 0, 0, 1], [1, 2, 2, 1, 2, 2], [1, 1, 0, 0, 0.5, 1]
    found, plain = (bradley_terry(*judged, entries=3, order_term=yes) for yes in (True, False))
    said = "no two entries were shown in both orders: the order effect cannot be separated from strength"
    assert (found.order_effect, found.order_low, found.order_reason) == (None, None, said)
    assert plain.order_reason == "no order term was requested"
    assert {**asdict(found), "order_reason": None} == {**asdict(plain), "order_reason": None}


def test_one_pair_in_both_orders_identifies_the_order_effect() -> None:
    judged = [0, 0, 1, 0, 0, 1, 1], [1, 2, 2, 1, 2, 2, 0], [1, 1, 0, 0, 0.5, 1, 1]
    found = bradley_terry(*judged, entries=3, order_term=True)
    assert found.ratings is not None
    assert [*found.ratings, found.order_effect] == pytest.approx(brute(judged, 3, order_term=True), abs=1e-5)


# Intervals


def percentiles(judged: Sequence[Any], items: list[int], entries: int, draws: int, **settings: Any) -> Any:
    """Percentiles of ratings by resampling items, one refit after the other by scipy."""
    rng, count = np.random.default_rng(42), max(items) + 1
    of_item = [np.flatnonzero(np.array(items) == item) for item in range(count)]
    drawn = [np.concatenate([of_item[item] for item in rng.integers(0, count, count)]) for _ in range(draws)]
    found = [brute([np.asarray(each)[rows] for each in judged], entries, **settings) for rows in drawn]
    return np.quantile(found, [0.1, 0.9], axis=0)


def test_intervals_match_percentiles_of_separate_refits() -> None:
    judged: Any = shuttled([-0.5, 0, 0.5], 30, 0.3, np.random.default_rng(43))
    found = bradley_terry(*judged, entries=3, confidence_level=0.8, order_term=True, resamples=4000)
    low, high = percentiles(judged[:3], judged[3], 3, 120, order_term=True)
    assert found.lows is not None and found.highs is not None
    assert [*found.lows, found.order_low] == pytest.approx(low, abs=0.09)
    assert [*found.highs, found.order_high] == pytest.approx(high, abs=0.09)


def test_copies_within_an_item_do_not_narrow_intervals() -> None:
    rng = np.random.default_rng(44)
    judged: Any = played(rng, 3, 60)
    once = bradley_terry(*judged, entries=3)
    first, second, points = (np.tile(each, 10) for each in judged)
    together = bradley_terry(first, second, points, [*range(60)] * 10, entries=3, weights=np.full(600, 0.1))
    apart = bradley_terry(first, second, points, entries=3)
    assert together.lows == pytest.approx(once.lows, abs=1e-7)
    assert together.highs == pytest.approx(once.highs, abs=1e-7)
    assert np.subtract(apart.highs, apart.lows).max() < 0.5 * np.subtract(once.highs, once.lows).min()  # type: ignore[arg-type]


def test_winning_all_50_gives_about_the_jeffreys_interval() -> None:
    """Beta(50.5, 0.5) has 2.5 % below 0.95121 and above 0.99999022 (scipy): odds of e to the 2.97 and 11.5."""
    found = bradley_terry([0] * 50, [1] * 50, [1] * 50, entries=2, resamples=20_000)
    assert found.lows is not None and found.highs is not None
    assert 2 * found.lows[0] == pytest.approx(2.97, abs=0.1)
    assert 2 * found.highs[0] == pytest.approx(11.54, abs=0.5)


@pytest.mark.parametrize("weight", [1e-200, 1e-9, 1e9, 1e20, 1e50, 1e150, 1e199])
def test_weights_of_any_size_give_ratings_or_a_reason(weight: float) -> None:
    judged = [0, 1, 2, 0, 1, 2], [1, 2, 0, 2, 0, 1], [1, 1, 0, 1, 0, 1]
    for weights in ([weight] * 6, [1, 1, 1, 1, 1, weight]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = bradley_terry(*judged, entries=3, weights=weights, order_term=True, resamples=50)
        assert_whole(found, 3)
        assert found.ratings is not None or found.reason == "the likelihood maximisation did not converge"


def test_a_seed_determines_the_interval_and_another_hardly_changes_it() -> None:
    judged: Any = shuttled([-0.5, 0, 0.5], 60, 0.0, np.random.default_rng(45))
    one, same, other = (bradley_terry(*judged, entries=3, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.lows != other.lows and one.ratings == other.ratings
    assert one.lows == pytest.approx(other.lows, abs=0.06)
    assert (one.seed, one.resamples, one.confidence_level, one.n, one.n_clusters) == (1, 1000, 0.95, 360, 60)


def test_intervals_widen_with_the_confidence_level() -> None:
    judged: Any = shuttled([-0.5, 0, 0.5], 20, 0.2, np.random.default_rng(46))
    wide, narrow = (
        bradley_terry(*judged, entries=3, order_term=True, confidence_level=confidence_level)
        for confidence_level in (0.99, 0.8)
    )
    for name, way in (("lows", 1), ("highs", -1)):
        assert np.all(way * np.subtract(getattr(narrow, name), getattr(wide, name)) > 0)
    assert wide.order_low < narrow.order_low < narrow.order_high < wide.order_high  # type: ignore[operator]


def test_batches_of_resamples_give_the_same_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: Any = shuttled([-0.5, 0, 0.5], 20, 0.2, np.random.default_rng(47))
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
    found = bradley_terry(first, second, points, clusters, entries=2)
    assert found.ratings is not None
    assert (found.lows, found.highs, found.seed, found.resamples) == (None, None, None, None)
    assert found.reason is not None and found.reason.startswith(said)


def assert_whole(found: Ratings, entries: int) -> None:
    """Plain finite numbers, as many as there are entries, or reasons."""
    for each in (found.ratings, found.lows, found.highs):
        assert each is None or (len(each) == entries and all(type(x) is float and math.isfinite(x) for x in each))
    assert (found.lows is None) == (found.highs is None) == (found.reason is not None)
    assert (found.order_low is None) == (found.order_high is None) == (found.order_reason is not None)
    assert found.ratings is not None or found.lows is None


@settings(deadline=None)
@given(st.lists(st.tuples(JUDGEMENT, st.sampled_from([1e-3, 0.5, 1.0, 1e4])), max_size=25), st.booleans())
def test_any_judgements_give_finite_ratings_or_a_reason(rows: list[Any], order_term: bool) -> None:
    judged = [(*pair, won, key, weight) for (pair, won, key), weight in rows]
    first, second, points, clusters, weights = zip(*judged, strict=True) if judged else [()] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = bradley_terry(
            first,
            second,
            points,
            clusters,
            entries=4,
            weights=weights,
            order_term=order_term,
            resamples=50,
        )
    assert_whole(found, 4)
    met = {0}
    for _ in range(4):
        met |= {entry for pair in zip(first, second, strict=True) if met & {*pair} for entry in pair}
    assert (found.ratings is not None) == (len(met) == 4)


def coverage(strengths: Sequence[float], items: int, order: float, runs: int, **settings: Any) -> tuple[float, float]:
    """How often intervals hold a rating, and how often the order effect; clusters are items."""
    rng, truth = np.random.default_rng(48), np.subtract(strengths, np.mean(strengths))
    held, order_held = 0.0, 0
    for seed in range(runs):
        judged: Any = shuttled(strengths, items, order, rng)
        weights = np.full(len(judged[0]), 0.5)
        found = bradley_terry(*judged, entries=4, weights=weights, order_term=True, seed=seed, **settings)
        assert found.lows is not None and found.order_low is not None and found.order_high is not None
        held += float(np.mean((np.array(found.lows) <= truth) & (truth <= np.array(found.highs))))
        order_held += found.order_low <= order <= found.order_high
    return held / runs, order_held / runs


def test_intervals_cover_the_ratings() -> None:
    of_ratings, of_order = coverage([-0.6, -0.2, 0.2, 0.6], 40, 0.4, 200, resamples=300)
    assert of_ratings >= 0.91 and of_order >= 0.9


def test_intervals_cover_when_some_win_or_lose_almost_everything() -> None:
    """With the added halves as they are, and not drawn, the strongest and the weakest would be in half of them."""
    assert coverage([-4.0, 0.0, 0.5, 3.0], 20, 0.0, 200, resamples=300)[0] >= 0.9


def test_intervals_without_clusters_do_not_cover() -> None:
    """What clusters are for: both orders and all pairs of an item share its answers."""
    rng, truth, held = np.random.default_rng(49), np.array([-0.6, -0.2, 0.2, 0.6]), 0.0
    for _ in range(100):
        first, second, points, _ = shuttled(truth.tolist(), 40, 0.0, rng)
        found = bradley_terry(first, second, points, entries=4, resamples=200)
        assert found.lows is not None and found.highs is not None
        held += float(np.mean((np.array(found.lows) <= truth) & (truth <= np.array(found.highs))))
    assert held / 100 < 0.85


@pytest.mark.slow
@pytest.mark.parametrize(("items", "least"), [(10, 0.89), (20, 0.92), (50, 0.93), (100, 0.935)])
@pytest.mark.parametrize("strengths", [[-0.6, -0.2, 0.2, 0.6], [-4.0, 0.0, 0.5, 3.0]], ids=["even", "uneven"])
def test_intervals_cover_the_ratings_in_long_simulations(strengths: list[float], items: int, least: float) -> None:
    of_ratings, of_order = coverage(strengths, items, 0.4, 1000, resamples=500)
    assert of_ratings >= least - 0.03 * (max(strengths) > 1 and items < 20) and of_order >= least - 0.02


# What is refused


@pytest.mark.parametrize(
    ("judged", "settings", "said"),
    [
        (([0], [1], [1]), {"entries": 1}, "entries: got 1, wanted a whole number of at least 2"),
        (([0], [1], [1]), {"entries": 2.0}, "entries: got 2.0"),
        (([0, 2], [1, 0], [1, 1]), {}, r"first\[1\]: got 2.0, wanted a whole number from 0 to 1"),
        (([0], [-1], [1]), {}, r"second\[0\]: got -1.0"),
        (([0], [0.5], [1]), {}, r"second\[0\]: got 0.5"),
        (([0, 1], [1, 1], [1, 1]), {}, r"second\[1\]: got 1.0, wanted another entry than the first"),
        (([0], [1], [0.7]), {}, r"points\[0\]: got 0.7, wanted 0, 0.5 or 1"),
        (([0], [1], [float("nan")]), {}, "points"),
        (([0, 1], [1], [1]), {}, "first: got 2 values, wanted as many as points, 1"),
        (([0], [1, 0], [1]), {}, "second: got 2"),
        (([0], [1], [1]), {"weights": [0]}, r"weights\[0\]: got 0.0, wanted more than 0"),
        (([0], [1], [1]), {"weights": [1, 1]}, "weights: got 2"),
        (([0], [1], [1]), {"clusters": "ab"}, "clusters: got 2"),
        (([0], [1], [1]), {"confidence_level": 95}, "confidence_level"),
        (([0], [1], [1]), {"resamples": 0}, "resamples: got 0, wanted a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused(judged: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bradley_terry(*judged, **{"entries": 2, **settings})
