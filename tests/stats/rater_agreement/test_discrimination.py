"""discrimination: Newcombe's and Welch's intervals against published values; coverage."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats import discrimination

BINARY = st.lists(st.sampled_from([0.0, 1.0]), max_size=20)
SCORES = st.lists(st.floats(0, 1), max_size=20)
SIDES = st.one_of(st.tuples(BINARY, BINARY), st.tuples(SCORES, SCORES), st.tuples(BINARY, SCORES))


def test_binary_scores_have_the_newcombe_interval() -> None:
    result = discrimination(np.arange(70) < 56, np.arange(80) < 48)
    assert (result.low, result.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)  # Newcombe 1998, table II
    assert (result.rate_right, result.rate_wrong, result.difference) == pytest.approx((0.8, 0.6, 0.2))
    assert (result.method, result.n_right, result.n_wrong, result.confidence_level) == ("newcombe", 70, 80, 0.95)


def test_student_sleep_data_match_welch() -> None:
    # Student 1908; R's t.test(extra ~ group, data = sleep): -3.3654832 to 0.2054832
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    result = discrimination((first + 2) / 8, (second + 2) / 8)
    assert (result.low, result.high) == pytest.approx((-3.3654832 / 8, 0.2054832 / 8), abs=1e-8)
    assert result.method == "welch t"


def test_scores_have_the_welch_interval(t_bisected: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(14)
    sides = [(rng.beta(5, 3, m), rng.beta(3, 2, n)) for m, n in rng.integers(5, 80, (50, 2)).tolist()]
    parts = np.array([[side.var(ddof=1) / side.size for side in both] for both in sides])
    sizes = np.array([[side.size for side in both] for both in sides])
    df = parts.sum(axis=1) ** 2 / np.sum(parts**2 / (sizes - 1), axis=1)
    halves = t_bisected(0.9, df) * np.sqrt(parts.sum(axis=1))
    for (right, wrong), half in zip(sides, halves, strict=True):
        result, centre = discrimination(right, wrong, confidence_level=0.9), right.mean() - wrong.mean()
        assert (result.low, result.high) == pytest.approx((max(-1, centre - half), min(1, centre + half)), abs=1e-9)


def test_a_single_fractional_score_selects_welch() -> None:
    assert discrimination([1, 1, 0], [0, 1, 0.5]).method == "welch t"


def test_variation_on_one_side_is_enough() -> None:
    result = discrimination([1.0, 1.0, 1.0], [0.2, 0.3, 0.4])
    half = 4.302653 * 0.1 / 3**0.5  # t with two degrees of freedom
    assert (result.low, result.high) == pytest.approx((0.7 - half, 0.7 + half), abs=1e-6)


def test_no_variation_on_both_sides_gives_no_interval() -> None:
    result = discrimination([0.9, 0.9], [0.1, 0.1, 0.1])
    assert (result.difference, result.low, result.high) == (pytest.approx(0.8), None, None)
    assert result.reason is not None and result.reason.endswith("no spread to compute an interval from")


@pytest.mark.parametrize(
    ("right", "wrong", "rates"),
    [
        ([], [], (None, None, None)),
        ([1], [], (1, None, None)),
        ([], [0], (None, 0, None)),
        ([1], [0, 1], (1, 0.5, 0.5)),
    ],
)
def test_fewer_than_two_on_a_side_give_no_interval(right: list[float], wrong: list[float], rates: Any) -> None:
    result = discrimination(right, wrong)
    assert (result.rate_right, result.rate_wrong, result.difference, result.low) == (*rates, None)
    counts = f"{len(right)} right and {len(wrong)} wrong answers"
    assert result.reason == f"{counts}: an interval needs at least 2 of each"


@pytest.mark.parametrize("bad", [1.5, -0.1, float("nan"), float("inf")])
def test_a_score_lies_between_0_and_1(bad: float) -> None:
    with pytest.raises(ValueError, match=r"wrong\[1\]: got"):
        discrimination([0.5, 0.5], [0.5, bad])


def test_newcombe_detects_only_a_discriminating_judge() -> None:
    can, cannot = (discrimination(np.arange(30) < yes, np.arange(30) < 12) for yes in (25, 14))
    assert can.low is not None and can.low > 0
    assert cannot.low is not None and cannot.low < 0


def test_welch_detects_only_a_discriminating_judge() -> None:
    scores = np.linspace(0.3, 0.6, 20)
    can, cannot = (discrimination(scores + more, scores) for more in (0.2, 0.02))
    assert can.low is not None and can.low > 0
    assert cannot.low is not None and cannot.low < 0


@settings(deadline=None)
@given(SIDES, st.floats(0.001, 0.999))
def test_any_scores_give_finite_floats(
    assert_plain: Callable[[Any], None], sides: tuple[list[float], list[float]], confidence_level: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = discrimination(*sides, confidence_level=confidence_level)
    assert_plain(result)
    assert result.low is None or -1 <= result.low <= result.difference <= result.high <= 1  # type: ignore[operator]


@settings(deadline=None)
@given(SIDES)
def test_swapping_the_sides_changes_the_sign(sides: tuple[list[float], list[float]]) -> None:
    original, other = discrimination(*sides), discrimination(*reversed(sides))
    assert (original.rate_right, original.n_right, original.method) == (other.rate_wrong, other.n_wrong, other.method)
    if original.low is not None:
        assert (original.difference, original.low, original.high) == pytest.approx(
            (-other.difference, -other.high, -other.low),  # type: ignore[operator]
            abs=1e-12,
        )


@settings(deadline=None)
@given(SIDES)
def test_intervals_widen_with_the_confidence_level(sides: tuple[list[float], list[float]]) -> None:
    wide, narrow = (discrimination(*sides, confidence_level=confidence_level) for confidence_level in (0.99, 0.9))
    assert wide.reason == narrow.reason
    assert wide.low is None or wide.low <= narrow.low <= narrow.high <= wide.high  # type: ignore[operator]


@pytest.mark.parametrize(("n", "runs", "least"), [(30, 1500, 0.92), (100, 3000, 0.94)])
@pytest.mark.parametrize("binary", [False, True])
def test_intervals_cover_the_difference(n: int, runs: int, least: float, binary: bool) -> None:
    rng = np.random.default_rng(15)
    shape = (runs, n)
    right, wrong = (
        (rng.random(shape) < 0.85, rng.random(shape) < 0.35)
        if binary
        else (rng.beta(6, 2, shape), rng.beta(2, 3, shape))
    )
    truth = 0.5 if binary else 6 / 8 - 2 / 5
    result = [discrimination(*both) for both in zip(right, wrong, strict=True)]
    low, high = np.array([(estimate.low, estimate.high) for estimate in result]).T
    assert np.mean((low <= truth) & (truth <= high)) >= least
