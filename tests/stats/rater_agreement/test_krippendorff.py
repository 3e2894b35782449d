"""krippendorff_alpha: the worked examples of Krippendorff 2011, and counting all pairs."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.rater_agreement.agreement import agreement
from evalflows.stats.rater_agreement.krippendorff import krippendorff_alpha

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


def test_the_worked_example_of_two_observers_and_yes_or_no() -> None:
    """Section A: Meg and Owen on ten articles, alpha 0.095."""
    meg, owen = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert round(krippendorff_alpha(list(zip(meg, owen, strict=True))).alpha or 0, 3) == 0.095


def test_the_worked_example_of_two_observers_and_five_labels() -> None:
    """Section B: Ben and Gerry on twelve articles, alpha 0.692."""
    ben, gerry = "aabbdcccedda", "babbbccceddd"
    assert round(krippendorff_alpha(list(zip(ben, gerry, strict=True))).alpha or 0, 3) == 0.692


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


def test_guessing_raters_have_alpha_near_0_and_informed_ones_do_not() -> None:
    rng = np.random.default_rng(6)
    truth, guesses = rng.integers(0, 3, 300), rng.integers(0, 3, (300, 2))
    guessed = krippendorff_alpha(guesses.tolist())
    assert guessed.low is not None and guessed.high is not None and guessed.low < 0 < guessed.high
    knows = np.where(rng.random((300, 2)) < 0.8, truth[:, None], guesses)
    known = krippendorff_alpha(knows.tolist())
    assert known.low is not None and known.low > 0.4


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


def test_alpha_of_two_raters_is_near_scotts_pi_and_kappa() -> None:
    rng = np.random.default_rng(8)
    ours = rng.integers(0, 2, 2000)
    theirs = np.where(rng.random(2000) < 0.7, ours, 1 - ours)
    alpha = krippendorff_alpha(np.stack([ours, theirs], axis=1).tolist(), resamples=2).alpha
    assert alpha == pytest.approx(agreement(ours.tolist(), theirs.tolist()).kappa, abs=2e-3)


@pytest.mark.parametrize(
    ("units", "alpha", "said"),
    [
        ([], None, "no unit has two ratings"),
        ([["a", None], [None, "b"]], None, "no unit has two ratings"),
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


@pytest.mark.parametrize(
    ("units", "changes", "said"),
    [
        ([[1, 2], [1]], {}, r"ratings\[1\]: got 1 ratings, wanted 2"),
        ([[1, "b"]], {"metric": "interval"}, r"ratings\[0\]: got 'b', wanted a finite number"),
        ([[1, math.inf]], {"metric": "ordinal"}, r"ratings\[0\]: got inf"),
        ([[1, 2]], {"metric": "ratio"}, "metric: got 'ratio'"),
        ([[1, 2]], {"confidence_level": 1.0}, "confidence_level"),
        ([[1, 2]], {"resamples": 0}, "resamples: got 0"),
        ([[1, 2]], {"clusters": ["a", "b"]}, "clusters: got 2"),
    ],
)
def test_bad_input_is_refused(units: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        krippendorff_alpha(units, **changes)


RATINGS = st.lists(st.tuples(*[st.sampled_from([1, 2, 5, None])] * 3), max_size=12)


@settings(deadline=None, max_examples=40)
@given(RATINGS, st.randoms(use_true_random=False), st.sampled_from(["nominal", "ordinal", "interval"]))
def test_the_order_of_units_and_raters_does_not_matter(
    assert_plain: Callable[[Any], None], units: list[Any], random: Any, metric: Any
) -> None:
    original = krippendorff_alpha(units, metric=metric, resamples=50)
    shuffled = [unit[::-1] for unit in random.sample(units, len(units))]
    other = krippendorff_alpha(shuffled, metric=metric, resamples=50)
    assert_plain(original)
    assert original == other, "the interval too, to the last bit"


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["yes", "no", 1, True]), st.sampled_from(["yes", 1.0]), st.integers(0, 4))),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_does_not_matter_within_and_between_clusters(rows: list[Any], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    first, second = (
        krippendorff_alpha([row[:2] for row in each], [f"c{row[2]}" for row in each], resamples=50)
        for each in (rows, shuffled)
    )
    assert first == second
