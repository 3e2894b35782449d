"""bradley_terry: ratings, guards, order effects and intervals against choix, matrices and an explicit likelihood."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from itertools import permutations
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from scipy.optimize import linprog, minimize  # type: ignore[import-untyped, unused-ignore]

from evalflows.stats.ratings import Ratings, bradley_terry

JUDGEMENT = st.tuples(
    st.sampled_from([*permutations(range(4), 2)]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from("abcdef")
)


def random_judgements(
    rng: np.random.Generator, entries: int, n: int, order: float = 0.0, ties: float = 0.2
) -> tuple[Any, ...]:
    """Return n judgements of random pairs in random order: first, second, points."""
    strengths = rng.normal(0, 1, entries)
    first, second = np.array([rng.choice(entries, 2, replace=False) for _ in range(n)]).T
    won = rng.random(n) < 1 / (1 + np.exp(-(strengths[first] - strengths[second] + order)))
    return first, second, np.where(rng.random(n) < ties, 0.5, won)


def maximised_ratings(
    judged: Sequence[Any],
    entries: int,
    weights: Any = None,
    *,
    order: Any = None,
    guarded: Sequence[int] = (),
    order_guarded: bool = False,
) -> list[float]:
    """Return the ratings with mean 0, then the order effect, by maximising the likelihood term by term.

    `order` is 1 where it is known, 0 elsewhere; without it there is no order effect. Half a win and half a loss are
    added to the `guarded` entries, against the mean of the others, or of all if there are no others.
    """
    rows = list(zip(*(np.asarray(each).tolist() for each in judged), strict=True))
    counts = [1.0] * len(rows) if weights is None else weights
    shown = [0.0] * len(rows) if order is None else np.asarray(order, dtype=float).tolist()
    others = [entry for entry in range(entries) if entry not in guarded] or [*range(entries)]

    def log_p(x: Any) -> float:
        return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))

    def loss(at: Any) -> Any:
        ratings, effect = at[:entries], at[entries] if order is not None else 0.0
        total = 0.0
        for (i, j, points), weight, known in zip(rows, counts, shown, strict=True):
            x = ratings[i] - ratings[j] + effect * known
            total += weight * (points * log_p(x) + (1 - points) * log_p(-x))
        ahead = [ratings[entry] - ratings[others].mean() for entry in guarded] + [effect] * order_guarded
        total += sum(log_p(x) / 2 + log_p(-x) / 2 for x in ahead)
        return -total + sum(ratings) ** 2  # 0 at the maximum, where the ratings have mean 0

    solution = minimize(loss, np.zeros(entries + (order is not None)), method="BFGS", options={"gtol": 1e-7}).x
    return [*(solution[:entries] - solution[:entries].mean()), *solution[entries:]]


def separated(judged: Sequence[Any], entries: int, order: Any = None) -> bool:
    """Return whether a direction of ratings contradicts no result and explains some (Albert 1984)."""
    first, second, points = (np.asarray(each) for each in judged)
    rows = np.eye(entries)[first] - np.eye(entries)[second]
    rows = rows if order is None else np.column_stack([rows, order])
    explained = np.vstack([rows[points > 0], -rows[points < 1]])
    found = linprog(-explained.sum(axis=0), A_ub=-explained, b_ub=np.zeros(len(explained)), bounds=(-1, 1))
    return bool(-found.fun > 1e-6)


# Ratings


@pytest.mark.parametrize("seed", range(4))
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


# Guards


@settings(max_examples=40)
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


# The order


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


# Intervals


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


@settings(max_examples=40)
@given(st.lists(st.tuples(JUDGEMENT, st.sampled_from([1e-3, 0.5, 1.0, 1e4])), max_size=25), st.booleans())
def test_any_judgements_give_finite_ratings_or_a_reason(rows: list[Any], order_term: bool) -> None:
    judged = [(*pair, won, key, weight) for (pair, won, key), weight in rows]
    first, second, points, clusters, weights = zip(*judged, strict=True) if judged else [()] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bradley_terry(first, second, points, clusters, entries=4, weights=weights, order_term=order_term)
    assert_whole(result, 4)
    connected = {0}
    for _ in range(4):
        connected |= {entry for pair in zip(first, second, strict=True) if connected & {*pair} for entry in pair}
    assert (result.ratings is not None) == (len(connected) == 4)


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
