"""length_controlled_rates: against explicit likelihoods and simulated judges that prefer length."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

from evalflows.stats.length_control import LengthControlled, length_controlled_rates


def chance(log_odds: Any) -> Any:
    return 1 / (1 + np.exp(-log_odds))


def one_pair(points: Any, longer_by: Any, clusters: Any = None, **settings: Any) -> LengthControlled:
    """Return the rate of the left entry of a single pair."""
    sides = np.ones(len(points)), np.zeros(len(points))
    (rate,) = length_controlled_rates(*sides, points, longer_by, clusters, pairs=[(1, 0)], **settings)
    return rate


def length_term(longer_by: Any) -> Any:
    return np.tanh(2 * longer_by / np.sqrt(np.mean(np.square(longer_by))))


def brute(points: Any, pair: Any, terms: Any) -> Any:
    """Return the coefficients of pairs and terms that maximise the likelihood term by term, with the terms' priors."""
    count = max(pair) + 1

    def lost(at: Any) -> Any:
        total = sum(2 * math.log(chance(each)) + 2 * math.log(chance(-each)) for each in at[count:])
        for won, k, row in zip(points, pair, terms, strict=True):
            x = at[k] + float(np.dot(row, at[count:]))
            total += won * math.log(chance(x)) + (1 - won) * math.log(chance(-x))
        return -total

    return minimize(lost, np.zeros(count + len(terms[0])), method="BFGS", options={"gtol": 1e-8}).x


def judged(
    rng: np.random.Generator, n: int, quality: float, length: float, order: float = 0.0, longer: float = 0.7
) -> tuple[Any, Any, Any]:
    """Return points, lengths and order for a judge with these preferences for quality, length and first position."""
    longer_by, shown = rng.normal(100 * longer, 100, n), rng.choice([-1.0, 1.0], n)
    share = chance(quality + length * length_term(longer_by) + order * shown)
    return (rng.random(n) < share).astype(float), longer_by, shown


def three_entries(rng: np.random.Generator) -> tuple[Any, ...]:
    """Return left, right, points, longer_by, order and examples of 20 examples with each of three pairs."""
    left, right = np.repeat([[0, 0, 1], [1, 2, 2]], 20, axis=1)
    points, longer_by, order = judged(rng, 60, 0.5, 1.0, 0.5, longer=0.2)
    return left, right, np.where(rng.random(60) < 0.3, rng.random(60), points), longer_by, order, [*range(20)] * 3


@pytest.mark.parametrize("with_order", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_maximises_the_explicit_likelihood(seed: int, with_order: bool) -> None:
    left, right, points, longer_by, order, examples = three_entries(np.random.default_rng(70 + seed))
    order = order if with_order else np.zeros(60)
    found = length_controlled_rates(
        left, right, points, longer_by, examples, pairs=[(0, 1), (0, 2), (1, 2), (2, 0)], order=order
    )
    terms = np.column_stack([length_term(longer_by), order][: 1 + with_order])
    *alone, effect = [*brute(points, np.repeat(range(3), 20), terms)[: 3 if not with_order else 5]] + [0.0] * (
        not with_order
    )
    wanted = [(chance(each + effect) + chance(each - effect)) / 2 for each in alone[:3]]
    assert [rate.rate for rate in found] == pytest.approx([*wanted, 1 - wanted[1]], abs=1e-6)
    names = f"pair, length{', order' if with_order else ''}"
    assert {rate.method for rate in found} == {f"logistic on {names}; cluster-robust t"}


def test_the_interval_matches_the_sandwich_matrices(t_bisected: Callable[[Any, Any], Any]) -> None:
    """The sandwich by matrices, with HC2 residuals; the terms' priors are units too, with their own variance."""
    left, right, points, longer_by, order, examples = three_entries(np.random.default_rng(75))
    pair, clusters = np.repeat(range(3), 20), np.array(examples) % 14
    terms = np.column_stack([length_term(longer_by), order])
    at, x = brute(points, pair, terms), np.column_stack([np.eye(3)[pair], terms])
    p = chance(x @ at)
    priors = np.diag([0, 0, 0, *(4 * chance(at[3:]) * chance(-at[3:]))])
    bread = np.linalg.inv(np.einsum("n,ni,nj", p * (1 - p), x, x) + priors)
    groups = np.array(
        [[np.flatnonzero((clusters == c) & (pair == k)) for k in range(3)] for c in range(14)], dtype=object
    )
    leverage = np.zeros(60)
    for rows in groups.ravel():
        leverage[rows] = sum(p[i] * (1 - p[i]) * x[i] @ bread @ x[i] for i in rows)
    scores = x * ((points - p) / np.sqrt(1 - leverage))[:, None]
    meat = (
        sum(np.outer(each, each) for each in (scores[clusters == c].sum(axis=0) for c in range(14))) * 14 / 13 + priors
    )
    slope = np.zeros(5)
    ends = chance(at[1] + at[4] * np.array([1, -1]))
    slope[1], slope[4] = (ends * (1 - ends)).sum() / 2, np.dot([0.5, -0.5], ends * (1 - ends))
    error, rate = math.sqrt(slope @ bread @ meat @ bread @ slope), ends.mean()
    found = length_controlled_rates(
        left, right, points, longer_by, clusters.tolist(), pairs=[(0, 2)], order=order, confidence_level=0.9
    )[0]
    half = float(t_bisected(0.9, 13.0)) * error / (rate * (1 - rate))
    log_odds = math.log(rate / (1 - rate))
    assert found.standard_error == pytest.approx(error, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((chance(log_odds - half), chance(log_odds + half)), abs=1e-5)
    assert (found.n, found.n_clusters, found.confidence_level) == (20, 14, 0.9)


# Judges


def test_a_position_bias_is_averaged_over_both_orders() -> None:
    rng = np.random.default_rng(79)
    longer_by, order = rng.normal(0, 50, 2000), rng.choice([1.0, -1.0, 0.0], 2000, p=[0.8, 0.1, 0.1])
    points = (rng.random(2000) < chance(0.3 + 1.5 * order)).astype(float)
    wanted = 0.9 * (chance(1.8) + chance(-1.2)) / 2 + 0.1 * chance(0.3)
    assert one_pair(points, longer_by, order=order).rate == pytest.approx(wanted, abs=0.04)
    blind = one_pair(points, longer_by)
    assert blind.rate is not None and blind.rate > 0.7
    assert one_pair(points, longer_by, order=np.ones(2000)) == blind, "an order that does not vary tells nothing"


# Edges


def test_half_a_win_and_a_loss_keep_estimates_finite() -> None:
    rng = np.random.default_rng(81)
    longer_by = rng.normal(0, 10, 100)
    all_won, by_length = one_pair(np.ones(100), longer_by), one_pair(longer_by > 0, longer_by)
    assert all_won.rate is not None and 0.98 < all_won.rate < 1 and all_won.low is not None
    assert 0.95 < all_won.low < 0.98, "Wilson's is 0.963"
    in_tens = one_pair(np.ones(100), longer_by, [*range(10)] * 10)
    assert in_tens.rate == pytest.approx(10.5 / 11, abs=1e-3) and in_tens.low is not None
    assert 0.6 < in_tens.low < 0.8, "Wilson's of 10 is 0.722"
    assert by_length.low is not None and by_length.high is not None and by_length.low < 0.5 < by_length.high


@pytest.mark.parametrize(("at_least_as_long", "rated"), [(0, False), (1, False), (2, True), (38, True), (39, False)])
def test_lengths_that_hardly_overlap_give_no_rate(at_least_as_long: int, rated: bool) -> None:
    longer_by = np.concatenate([np.full(40 - at_least_as_long, 30.0), np.full(at_least_as_long, -20.0)])
    result = one_pair([1.0, 0.0] * 20, longer_by)
    assert (result.rate is not None) == rated == (result.reason is None)
    if not rated:
        said = f"lengths do not overlap: in {min(at_least_as_long, 40 - at_least_as_long)} of 40 comparisons"
        assert str(result.reason).startswith(said)
        assert (result.low, result.high, result.standard_error) == (None, None, None)


@pytest.mark.parametrize(
    ("points", "longer_by", "clusters", "rated", "said"),
    [
        ([], [], None, False, "no comparisons: a rate needs at least 1"),
        ([1, 0], [3, 3], None, False, "lengths do not overlap: in 0 of 2 comparisons, the answer that is usually"),
        ([1], [0], None, True, "1 comparison: an interval needs at least 2"),
        ([1, 0, 1], [3, -2, 1], None, True, "3 comparisons: an interval needs at least 10"),
        ([1, 0, 1] * 4, [3, -2, 1] * 4, "abcd" * 3, True, "4 clusters: an interval needs at least 10"),
        ([0.5] * 12, [-1, *range(11)], None, True, "the points of all 12 comparisons are fitted exactly"),
    ],
)
def test_missing_estimates_have_a_reason(points: Any, longer_by: Any, clusters: Any, rated: bool, said: str) -> None:
    result = one_pair(points, longer_by, clusters)
    assert (result.rate is not None) == rated
    assert (result.low, result.high, result.standard_error) == (None, None, None)
    assert result.reason is not None and result.reason.startswith(said)
