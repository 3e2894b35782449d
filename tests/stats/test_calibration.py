"""Weights from cases that people put in order."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stats.calibration import RATE, SHAPE, Calibration, calibrated_weights, ordered_pairs

TRUE = np.array([0.7, 0.2, 0.1])


def ranked(n: int, seed: int, weights: Any = TRUE, noise: float = 0.0) -> tuple[Any, Any]:
    """Cases with parts, and the pairs of someone who goes by these weights, and errs a little."""
    rng = np.random.default_rng(seed)
    parts = rng.random((n, len(weights)))
    return parts, ordered_pairs(parts @ np.array(weights) + rng.normal(0, 1, n) * noise)


def calibrated(n: int, seed: int, weights: Any = TRUE, noise: float = 0.0, **given: Any) -> Calibration:
    return calibrated_weights(*ranked(n, seed, weights, noise), resamples=100, **given)


def test_weights_that_people_go_by_are_found() -> None:
    found = calibrated(20, 0, noise=0.05)
    assert found.weights is not None and found.lows is not None and found.highs is not None
    assert found.weights == pytest.approx(TRUE, abs=0.1)
    assert all(low < true < high for low, true, high in zip(found.lows, TRUE, found.highs, strict=True))
    assert found.better_than_equal and (found.gain or 0) > 0.1
    assert sum(found.weights) == pytest.approx(1) and min(found.weights) > 0


@pytest.mark.parametrize("seed", range(3))
def test_people_who_go_by_nothing_teach_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = calibrated_weights(rng.random((15, 3)), ordered_pairs(rng.normal(size=15)), resamples=100)
    assert not found.better_than_equal
    assert found.agreement_low is not None and found.agreement_low < 0.5


def test_people_who_weigh_alike_do_not_ask_for_other_weights() -> None:
    assert not any(calibrated(15, seed, [1 / 3] * 3, 0.05).better_than_equal for seed in range(5))


def test_orders_without_contradiction_have_a_maximum() -> None:
    """The likelihood alone would send the strengths to infinity."""
    found = calibrated(12, 3)
    assert found.weights is not None and found.weights == pytest.approx(TRUE, abs=0.12)


def test_the_fit_is_the_maximum_by_brute_force() -> None:
    parts, pairs = ranked(12, 5, [0.6, 0.4], 0.1)
    found = calibrated_weights(parts, pairs, resamples=100)
    ahead = parts[pairs[:, 0]] - parts[pairs[:, 1]]
    strengths, shares = np.geomspace(0.1, 200, 400), np.linspace(0.005, 0.995, 199)
    b = strengths[:, None, None] * np.stack([shares, 1 - shares], axis=-1)
    value = -np.logaddexp(0, -(b @ ahead.T)).sum(axis=-1) * 11 / len(pairs)
    value += (SHAPE - 1) * np.log(b).sum(axis=-1) - RATE * b.sum(axis=-1)
    best = shares[np.unravel_index(value.argmax(), value.shape)[1]]
    assert found.weights is not None and found.weights[0] == pytest.approx(best, abs=0.005)


def test_agreement_leaves_each_case_out_and_counts_it() -> None:
    """By hand: fitted anew without each case, and asked about its pairs."""
    parts, pairs = ranked(6, 7, noise=0.2)
    right = []
    for case in range(6):
        mine = (pairs == case).any(axis=1)
        weights = calibrated_weights(parts, pairs[~mine], resamples=100).weights
        right += [float(parts[better] @ weights > parts[worse] @ weights) for better, worse in pairs[mine]]
    found = calibrated_weights(parts, pairs, resamples=100)
    assert found.agreement == pytest.approx(np.mean(right))
    means = parts.mean(axis=1)
    assert found.equal_agreement == pytest.approx(np.mean([means[a] > means[b] for a, b in pairs]))
    assert found.alone == pytest.approx([np.mean(parts[pairs[:, 0], j] > parts[pairs[:, 1], j]) for j in range(3)])


def test_a_part_that_goes_against_people_gets_next_to_nothing() -> None:
    found = calibrated(16, 2, [0.6, -0.4])
    assert found.weights is not None and found.weights[1] < 0.1
    assert found.alone is not None and found.alone[1] < 0.5 < found.alone[0]


def test_a_part_that_is_the_same_everywhere_is_told() -> None:
    rng = np.random.default_rng(0)
    parts = np.column_stack([rng.random(10), np.full(10, 0.5)])
    found = calibrated_weights(parts, ordered_pairs(parts[:, 0]), resamples=100)
    assert found.constant == (False, True)


def test_ranks_and_scores_make_pairs_and_ties_none() -> None:
    assert sorted(map(tuple, ordered_pairs([3, 1, 2]).tolist())) == [(0, 1), (0, 2), (2, 1)]
    assert sorted(map(tuple, ordered_pairs([1, 2, 2], higher_is_better=False).tolist())) == [(0, 1), (0, 2)]
    assert len(ordered_pairs([5, 5, 5])) == 0


@given(st.permutations(range(6)))
@settings(max_examples=4, deadline=None)
def test_the_order_of_the_cases_does_not_matter(order: list[int]) -> None:
    parts = np.random.default_rng(3).random((6, 2))
    scores = parts @ [0.8, 0.2]
    one = calibrated_weights(parts, ordered_pairs(scores), resamples=100)
    other = calibrated_weights(parts[order], ordered_pairs(scores[order]), resamples=100)
    assert one.weights == pytest.approx(other.weights, abs=1e-4)
    assert one.agreement == pytest.approx(other.agreement)


def test_the_order_of_the_parts_does_not_matter() -> None:
    parts, pairs = ranked(10, 1)
    weights = calibrated_weights(parts, pairs, resamples=100).weights
    for order in permutations(range(3)):
        other = calibrated_weights(parts[:, order], pairs, resamples=100).weights
        assert weights is not None and other == pytest.approx([weights[place] for place in order], abs=1e-4)


def test_too_few_cases_have_a_reason_and_no_weights() -> None:
    two = calibrated_weights([[0.1, 0.2], [0.3, 0.4]], [(0, 1)])
    assert (two.weights, two.agreement, two.n_cases) == (None, None, 2)
    assert two.reason == "2 cases: wanted 3 at least, and better 10 to 20"
    none = calibrated_weights([[0.1], [0.3], [0.2]], [])
    assert str(none.reason).startswith("no two cases that people prefer one of") and none.n_pairs == 0


def test_one_part_has_all_the_weight_and_no_gain() -> None:
    found = calibrated_weights([[0.1], [0.3], [0.2], [0.9]], ordered_pairs([1, 3, 2, 4]), resamples=100)
    assert (found.weights, found.agreement, found.gain, found.better_than_equal) == ((1.0,), 1.0, 0.0, False)


def test_the_same_seed_gives_the_same() -> None:
    parts, pairs = ranked(8, 0)
    one, again, other = (calibrated_weights(parts, pairs, resamples=100, seed=seed) for seed in (0, 0, 1))
    assert one == again != other


BAD = {
    "a part outside": (lambda: calibrated_weights([[2.0]], []), "parts[0][0]: got 2.0, wanted 0 to 1"),
    "a nan": (lambda: calibrated_weights([[math.nan]], []), "parts[0][0]: got nan"),
    "a case against itself": (lambda: calibrated_weights([[0.1], [0.2]], [(1, 1)]), "pairs[0]: got 1 and 1"),
    "no such case": (lambda: calibrated_weights([[0.1], [0.2]], [(0, 2)]), "wanted two different cases, 0 to 1"),
    "few resamples": (lambda: calibrated_weights([[0.1], [0.2]], [(0, 1)], resamples=1), "resamples: got 1"),
    "no level": (lambda: calibrated_weights([[0.1], [0.2]], [(0, 1)], level=95), "level: got 95"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
