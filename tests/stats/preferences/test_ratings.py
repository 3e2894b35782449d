"""bradley_terry: ratings, guards and order effects against choix and an explicit likelihood, and refused input."""

import math
import warnings
from dataclasses import asdict
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_pairs import JUDGEMENT, clustered_judgements, maximised_ratings, random_judgements, separated

from evalflows.stats import bradley_terry

# Ratings


@pytest.mark.parametrize("seed", range(20))
def test_ratings_without_a_guard_equal_those_of_choix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(3, 12))
    judged = random_judgements(rng, entries, 20 * entries)
    wins: list[tuple[int, int]] = []
    for i, j, points in zip(*(each.tolist() for each in judged), strict=True):
        # A tie counts as one win each way, so all other judgements count twice.
        wins += [(i, j), (j, i)] if points == 0.5 else [(i, j) if points else (j, i)] * 2
    result = bradley_terry(*judged, entries=entries, order_term=False)
    assert (result.guarded, result.guard_reason, result.guard) == ((), None, "needed")
    assert result.ratings == pytest.approx(choix.opt_pairwise(entries, wins, alpha=0.0, tol=1e-9), abs=1e-6)
    assert result.ratings == pytest.approx(choix.ilsr_pairwise(entries, wins, alpha=0.0, tol=1e-10), abs=1e-6)
    assert sum(result.ratings or ()) == pytest.approx(0, abs=1e-12)
    assert bradley_terry(*judged, entries=entries, order_term=False, guard="never").ratings == result.ratings


@pytest.mark.parametrize("order_term", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_maximises_the_explicit_likelihood(seed: int, order_term: bool) -> None:
    """With graded points, weights, and half of the orders unknown."""
    rng = np.random.default_rng(100 + seed)
    first, second, points = random_judgements(rng, 4, 60, order=0.7)
    judged = first, second, np.where(rng.random(60) < 0.5, rng.random(60), points)
    weights, known = rng.choice([0.5, 1.0, 2.0], 60), rng.random(60) < 0.5
    result = bradley_terry(*judged, entries=4, weights=weights, order_known=known, order_term=order_term)
    assert result.ratings is not None
    ours = [*result.ratings, *([result.order_effect] if order_term else [])]
    assert ours == pytest.approx(maximised_ratings(judged, 4, weights, order=known if order_term else None), abs=1e-5)


def test_ratings_of_two_entries_are_their_log_odds() -> None:
    """Entry 0 has 3 wins and a tie in 5: 3.5 to 1.5."""
    judged = [0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [1, 0, 1, 0.5, 0]
    result = bradley_terry(*judged, entries=2, order_term=False).ratings
    assert result == pytest.approx((math.log(3.5 / 1.5) / 2, -math.log(3.5 / 1.5) / 2))


def test_a_graded_preference_counts_as_its_grade() -> None:
    graded = bradley_terry([0, 0], [1, 1], [0.51, 0.6], entries=2)
    assert graded.ratings is not None and graded.guarded == ()
    assert graded.ratings[0] - graded.ratings[1] == pytest.approx(math.log(1.11 / 0.89))


def test_a_sparse_tournament_is_not_shrunk() -> None:
    """Half a win each way per pair gives a slope of 0.45 here; maximum likelihood overshoots a little."""
    rng, slopes = np.random.default_rng(50), []
    truth = np.linspace(-1.5, 1.5, 20)
    i, j = np.triu_indices(20, 1)
    for _ in range(20):
        points = (rng.random((2, i.size)) < 1 / (1 + np.exp(truth[j] - truth[i]))).ravel()
        result = bradley_terry(np.tile(i, 2), np.tile(j, 2), points, entries=20)
        slopes.append(np.polyfit(truth, np.array(result.ratings), 1)[0])
    assert 1.0 < np.mean(slopes) < 1.15


# Guards


@settings(deadline=None)
@given(st.lists(JUDGEMENT, min_size=3, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12), st.booleans())
def test_ratings_without_a_guard_exist_unless_the_results_are_separated(
    rows: list[Any], known: list[bool], order_term: bool
) -> None:
    pairs, points = np.array([pair for pair, *_ in rows]).T, [won for _, won, _ in rows]
    judged, order = (*pairs, points), np.array(known[: len(rows)])
    guarded, bare = (
        bradley_terry(*judged, entries=4, order_known=order, order_term=order_term, guard=guard)
        for guard in ("needed", "never")  # type: ignore[arg-type]
    )
    if guarded.ratings is None:  # not connected
        assert bare.ratings is None
        return
    expected = separated(judged, 4, order if guarded.order_term else None)
    assert (bare.ratings is None) == expected == (guarded.guard_reason is not None)
    assert (bare.reason is not None and bare.reason.endswith("without a guard")) == expected
    if not expected:
        assert bare.ratings == guarded.ratings


def test_an_entry_that_wins_everything_is_guarded_alone() -> None:
    judged = [2, 2, 0, 0, 1, 2], [0, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 1]
    result = bradley_terry(*judged, entries=3, order_term=False)
    assert result.ratings is not None and result.lows is not None and result.highs is not None
    assert (result.guarded, result.guard_reason) == (
        (2,),
        "1 entry of 3 never lost to the others or never beat them: half a win and half a loss added to each",
    )
    assert result.ratings == pytest.approx(maximised_ratings(judged, 3, guarded=[2]), abs=1e-5)
    assert all(low < rating < high for low, rating, high in zip(result.lows, result.ratings, result.highs, strict=True))
    never = bradley_terry(*judged, entries=3, order_term=False, guard="never")
    assert (never.ratings, never.lows, never.guarded, never.guard) == (None, None, (), "never")
    assert never.reason == "1 entry of 3 never lost to the others or never beat them: no finite ratings without a guard"


def test_a_group_that_loses_everything_is_guarded() -> None:
    judged = [0, 1, 2, 0, 1, 3, 4], [1, 2, 0, 3, 4, 4, 3], [1, 1, 1, 1, 1, 1, 1]
    result = bradley_terry(*judged, entries=5, order_term=False)
    assert result.guarded == (3, 4)
    assert result.ratings == pytest.approx(maximised_ratings(judged, 5, guarded=[3, 4]), abs=1e-5)


def test_without_a_largest_group_every_entry_is_guarded() -> None:
    judged = [0] * 50, [1] * 50, [1] * 50
    result = bradley_terry(*judged, entries=2)
    assert result.guarded == (0, 1) and str(result.guard_reason).startswith("there is no largest group")
    assert result.ratings == pytest.approx(maximised_ratings(judged, 2, guarded=[0, 1]), abs=1e-5)
    growing = [bradley_terry([0] * n, [1] * n, [1] * n, entries=2).ratings for n in (1, 5, 50)]
    assert growing == sorted(growing)  # type: ignore[type-var]


def test_always_guards_every_entry() -> None:
    judged = random_judgements(np.random.default_rng(51), 4, 40)
    result = bradley_terry(*judged, entries=4, guard="always", order_term=True)
    assert (result.guarded, result.guard) == ((0, 1, 2, 3), "always")
    assert result.guard_reason == "as requested: half a win and half a loss added to every entry and the order effect"
    wanted = maximised_ratings(judged, 4, order=np.ones(40), guarded=range(4), order_guarded=True)
    assert [*(result.ratings or ()), result.order_effect] == pytest.approx(wanted, abs=1e-5)


def test_unconnected_entries_have_no_ratings() -> None:
    result = bradley_terry([0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 1, 3], [1, 1, 0, 1, 0, 0.5], entries=4)
    assert (result.ratings, result.lows, result.standard_errors, result.df) == (None, None, None, None)
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
            bradley_terry(*sides, points, entries=4, order_term=order_term)
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
            order_term=False,
        )
        for some in (original, other)
    )
    assert (result.ratings is None, result.guarded) == (same.ratings is None, same.guarded)
    for name in ("ratings", "lows", "highs"):
        assert getattr(result, name) == pytest.approx(getattr(same, name), rel=1e-6, abs=1e-6)


def test_weights_count_like_repeated_judgements() -> None:
    rng = np.random.default_rng(40)
    times, items = rng.integers(1, 4, 50), list(range(50))
    judged: Any = (*random_judgements(rng, 4, 50), items)
    weighed = bradley_terry(*judged, entries=4, weights=times)
    repeated = bradley_terry(*[np.repeat(each, times).tolist() for each in judged], entries=4)
    for name in ("ratings", "lows", "highs"):
        assert getattr(weighed, name) == pytest.approx(getattr(repeated, name), abs=1e-8)


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
        "bradley-terry with an order term; cluster-robust t",
    )


def test_the_order_term_removes_position_bias_from_ratings() -> None:
    """Two equal entries; entry 0 was first 90 times of 100, and the first wins 3 times of 4."""
    judged = [0] * 90 + [1] * 10, [1] * 90 + [0] * 10, [1, 1, 1, 0] * 25
    blind, seeing = (bradley_terry(*judged, entries=2, order_term=yes).ratings for yes in (False, True))
    assert blind is not None and blind[0] - blind[1] > 0.7
    assert seeing is not None and abs(seeing[0] - seeing[1]) < 0.2


def test_an_order_that_decides_everything_is_guarded() -> None:
    judged = [0, 1, 2, 1, 2, 0] * 5, [1, 0, 1, 2, 0, 2] * 5, [1] * 30
    result = bradley_terry(*judged, entries=3)
    assert result.ratings == pytest.approx((0, 0, 0), abs=1e-9)
    assert result.order_effect == pytest.approx(math.log(30.5 / 0.5)) and result.order_low is not None
    said = "the position shown explains every result"
    assert (result.guarded, result.guard_reason) == (
        (),
        f"{said}: half a win and half a loss added to the order effect",
    )
    never = bradley_terry(*judged, entries=3, guard="never")
    assert (never.ratings, never.reason) == (None, f"{said}: no finite order effect without a guard")


def test_without_variation_the_order_effect_has_no_interval() -> None:
    """Each item has the same verdict in both orders."""
    judged = [0, 1] * 6, [1, 0] * 6, [1, 0] * 4 + [0, 1] * 2, [*np.repeat(range(6), 2)]
    result = bradley_terry(*judged, entries=2)
    assert result.lows is not None and result.reason is None
    assert result.order_effect == pytest.approx(0, abs=1e-9) and result.order_low is None
    assert str(result.order_reason).startswith("all points are fitted exactly: no variation")


def test_pairs_in_one_order_identify_the_order_effect_only_on_request() -> None:
    judged = [0, 0, 1, 0, 0, 1], [1, 2, 2, 1, 2, 2], [1, 1, 0, 0, 0.5, 1]
    result, plain = (bradley_terry(*judged, entries=3, order_term=yes) for yes in (None, False))
    said = "no two entries were shown in both orders: the order effect cannot be separated from strength"
    assert (result.order_effect, result.order_low, result.order_term) == (None, None, False)
    assert result.order_reason == f"{said} without the ratings of third entries"
    assert plain.order_reason == "no order term was requested"
    assert {**asdict(result), "order_reason": None} == {**asdict(plain), "order_reason": None}
    requested = bradley_terry(*judged, entries=3, order_term=True)
    assert [*(requested.ratings or ()), requested.order_effect] == pytest.approx(
        maximised_ratings(judged, 3, order=np.ones(6)), abs=1e-5
    )
    chain = bradley_terry([0, 1, 0, 1], [1, 2, 1, 2], [1, 0, 0, 1], entries=3, order_term=True)
    assert (chain.order_effect, chain.order_reason) == (None, said)
    assert chain.ratings == pytest.approx((0, 0, 0), abs=1e-9)


def test_one_pair_in_both_orders_identifies_the_order_effect() -> None:
    judged = [0, 0, 1, 0, 0, 1, 1], [1, 2, 2, 1, 2, 2, 0], [1, 1, 0, 0, 0.5, 1, 1]
    result = bradley_terry(*judged, entries=3)
    assert result.ratings is not None
    assert [*result.ratings, result.order_effect] == pytest.approx(
        maximised_ratings(judged, 3, order=np.ones(7)), abs=1e-5
    )


def test_an_unknown_order_has_no_effect() -> None:
    judged = random_judgements(np.random.default_rng(52), 4, 80, order=1.0)
    none_known = bradley_terry(*judged, entries=4, order_known=np.zeros(80))
    assert (none_known.order_effect, none_known.order_reason) == (None, "no order is known")
    assert none_known.ratings == bradley_terry(*judged, entries=4, order_term=False).ratings
    last = bradley_terry(*judged, entries=4, order_known=np.arange(80) < 40)
    first, second, points = judged
    turned = np.where(np.arange(80) < 40, first, second), np.where(np.arange(80) < 40, second, first)
    again = bradley_terry(
        *turned, np.where(np.arange(80) < 40, points, 1 - points), entries=4, order_known=np.arange(80) < 40
    )
    assert last.order_effect == pytest.approx(again.order_effect, abs=1e-9)
    assert last.ratings == pytest.approx(again.ratings, abs=1e-9)


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
        (([0], [1], [1.5]), {}, r"points\[0\]: got 1.5, wanted 0 to 1"),
        (([0], [1], [float("nan")]), {}, "points"),
        (([0, 1], [1], [1]), {}, "first: got 2 values, wanted 1, as many as points"),
        (([0], [1, 0], [1]), {}, "second: got 2"),
        (([0], [1], [1]), {"weights": [0]}, r"weights\[0\]: got 0.0, wanted more than 0"),
        (([0], [1], [1]), {"weights": [1, 1]}, "weights: got 2"),
        (([0], [1], [1]), {"clusters": "ab"}, "clusters: got 2"),
        (([0], [1], [1]), {"confidence_level": 95}, "confidence_level"),
        (([0], [1], [1]), {"guard": "sometimes"}, "guard: got 'sometimes', wanted one of needed, always, never"),
        (([0], [1], [1]), {"order_term": "yes"}, "order_term: got 'yes', wanted true, false or nothing"),
        (([0], [1], [1]), {"order_known": [1, 1]}, "order_known: got 2"),
        (([0], [1], [1]), {"order_known": [2]}, r"order_known\[0\]: got 2.0, wanted true or false"),
    ],
)
def test_bad_input_is_refused(judged: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bradley_terry(*judged, **{"entries": 2, **settings})
