"""bradley_terry: ratings and order effects against choix and an explicit likelihood, and refused input."""

import math
import warnings
from dataclasses import asdict
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_pairs import JUDGEMENT, clustered_judgements, maximised_ratings, random_judgements

from evalflows.stats import bradley_terry

# Ratings


@pytest.mark.parametrize("seed", range(20))
def test_ratings_match_choix_with_half_a_win_added_each_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(3, 8))
    judged = random_judgements(rng, entries, 40 * entries)
    wins: list[tuple[int, int]] = []
    for i, j, points in zip(*(each.tolist() for each in judged), strict=True):
        # A tie counts as one win each way, so all other judgements count twice.
        wins += [(i, j), (j, i)] if points == 0.5 else [(i, j) if points else (j, i)] * 2
    compared = {(min(pair), max(pair)) for pair in wins}
    wins += [*compared, *((j, i) for i, j in compared)]
    result = bradley_terry(*judged, entries=entries, resamples=1)
    assert result.ratings == pytest.approx(choix.opt_pairwise(entries, wins, alpha=0.0, tol=1e-9), abs=1e-3)
    assert result.ratings == pytest.approx(choix.ilsr_pairwise(entries, wins, alpha=0.0), abs=1e-3)
    assert sum(result.ratings or ()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("order_term", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_maximises_the_explicit_likelihood(seed: int, order_term: bool) -> None:
    rng = np.random.default_rng(100 + seed)
    judged, weights = random_judgements(rng, 4, 60, order=0.7), rng.choice([0.5, 1.0, 2.0], 60)
    result = bradley_terry(*judged, entries=4, weights=weights, resamples=1, order_term=order_term)
    assert result.ratings is not None
    ours = [*result.ratings, *([result.order_effect] if order_term else [])]
    assert ours == pytest.approx(maximised_ratings(judged, 4, weights, order_term=order_term), abs=1e-5)


def test_ratings_of_two_entries_are_their_log_odds() -> None:
    """Entry 0 has 3 wins and a tie in 5: with the added halves the odds are 4 to 2."""
    judged = [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [1, 0, 1, 0.5, 0]
    result = bradley_terry(*judged, entries=2, resamples=1).ratings
    assert result == pytest.approx((math.log(4 / 2) / 2, -math.log(4 / 2) / 2))


def test_an_entry_that_wins_everything_has_a_rating() -> None:
    judged = [2, 2, 0, 0, 1, 2], [0, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 1]
    result = bradley_terry(*judged, entries=3)
    assert result.ratings is not None and result.lows is not None and result.highs is not None
    assert result.ratings[2] > 0.8 > 0 > max(result.ratings[:2])
    assert result.ratings == pytest.approx(maximised_ratings(judged, 3), abs=1e-5)
    assert all(low < rating < high for low, rating, high in zip(result.lows, result.ratings, result.highs, strict=True))


def test_the_rating_of_a_constant_winner_grows_with_its_wins() -> None:
    result = [bradley_terry([0] * n, [1] * n, [1] * n, entries=2).ratings for n in (1, 5, 50)]
    assert [each[0] * 2 for each in result if each] == pytest.approx([math.log((n + 0.5) / 0.5) for n in (1, 5, 50)])


def test_unconnected_entries_have_no_ratings() -> None:
    result = bradley_terry([0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 1, 3], [1, 1, 0, 1, 0, 0.5], entries=4)
    assert (result.ratings, result.lows, result.seed, result.resamples) == (None, None, None, None)
    assert result.reason == "entries 0 and 2 are not connected by comparisons: no common scale"
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
        original, other = (
            bradley_terry(*sides, points, entries=4, order_term=order_term, resamples=1)
            for sides in ((first, second), (again[first], again[second]))
        )
    assert (original.ratings is None) == (other.ratings is None)
    if original.ratings is not None and other.ratings is not None:
        assert original.ratings == pytest.approx([other.ratings[number] for number in numbers], abs=1e-7)
        assert original.order_effect == pytest.approx(other.order_effect, abs=1e-7)


@settings(deadline=None)
@given(st.lists(JUDGEMENT, max_size=25), st.lists(st.booleans(), min_size=25, max_size=25))
def test_without_an_order_term_the_order_does_not_matter(rows: list[Any], turned: list[bool]) -> None:
    original, other = (
        [(pair[::-1], 1 - won) if turn else (pair, won) for (pair, won, _), turn in zip(rows, turns, strict=False)]
        for turns in ([False] * 25, turned)
    )
    result, same = (
        bradley_terry(
            [pair[0] for pair, _ in some],
            [pair[1] for pair, _ in some],
            [won for _, won in some],
            [key for *_, key in rows],
            entries=4,
            resamples=20,
        )
        for some in (original, other)
    )
    assert result == same


def test_weights_count_like_repeated_judgements() -> None:
    rng = np.random.default_rng(40)
    times, items = rng.integers(1, 4, 50), list(range(50))
    judged: Any = (*random_judgements(rng, 4, 50), items)
    weighed = bradley_terry(*judged, entries=4, weights=times)
    repeated = bradley_terry(*[np.repeat(each, times).tolist() for each in judged], entries=4)
    for name in ("ratings", "lows", "highs"):
        assert getattr(weighed, name) == pytest.approx(getattr(repeated, name), abs=1e-9)


# The order


def test_position_bias_is_estimated() -> None:
    judged: Any = clustered_judgements([-1, 0, 0.2, 0.8], 400, 0.9, np.random.default_rng(41))
    result = bradley_terry(*judged, entries=4, order_term=True)
    assert result.ratings == pytest.approx((-1, 0, 0.2, 0.8), abs=0.2)
    assert result.order_effect == pytest.approx(0.9, abs=0.1)
    assert result.order_low is not None and 0.7 < result.order_low < result.order_effect  # type: ignore[operator]
    assert result.order_high is not None and result.order_effect < result.order_high < 1.1  # type: ignore[operator]
    assert (result.order_reason, result.method) == (
        None,
        "bradley-terry with an order term; cluster bootstrap percentiles",
    )


def test_the_order_term_removes_position_bias_from_ratings() -> None:
    """Two equal entries; entry 0 was first 90 times of 100, and the first wins 3 times of 4."""
    judged = [0] * 90 + [1] * 10, [1] * 90 + [0] * 10, [1, 1, 1, 0] * 25
    blind, seeing = (bradley_terry(*judged, entries=2, order_term=yes, resamples=1).ratings for yes in (False, True))
    assert blind is not None and blind[0] - blind[1] > 0.7
    assert seeing is not None and abs(seeing[0] - seeing[1]) < 0.2


def test_an_order_that_decides_everything_has_a_finite_effect() -> None:
    judged = [0, 1, 2, 1, 2, 0] * 5, [1, 0, 1, 2, 0, 2] * 5, [1] * 30
    result = bradley_terry(*judged, entries=3, order_term=True)
    assert result.ratings == pytest.approx((0, 0, 0), abs=1e-9)
    assert result.order_effect == pytest.approx(math.log(30.5 / 0.5)) and result.order_low is not None


def test_pairs_in_one_order_do_not_identify_the_order_effect() -> None:
    judged = [0, 0, 1, 0, 0, 1], [1, 2, 2, 1, 2, 2], [1, 1, 0, 0, 0.5, 1]
    result, plain = (bradley_terry(*judged, entries=3, order_term=yes) for yes in (True, False))
    said = "no two entries were shown in both orders: the order effect cannot be separated from strength"
    assert (result.order_effect, result.order_low, result.order_reason) == (None, None, said)
    assert plain.order_reason == "no order term was requested"
    assert {**asdict(result), "order_reason": None} == {**asdict(plain), "order_reason": None}


def test_one_pair_in_both_orders_identifies_the_order_effect() -> None:
    judged = [0, 0, 1, 0, 0, 1, 1], [1, 2, 2, 1, 2, 2, 0], [1, 1, 0, 0, 0.5, 1, 1]
    result = bradley_terry(*judged, entries=3, order_term=True)
    assert result.ratings is not None
    assert [*result.ratings, result.order_effect] == pytest.approx(
        maximised_ratings(judged, 3, order_term=True), abs=1e-5
    )


# Refused input


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
        (([0, 1], [1], [1]), {}, "first: got 2 values, wanted 1, as many as points"),
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
