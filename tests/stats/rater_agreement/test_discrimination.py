"""discrimination: Newcombe's and Welch's intervals against published values; coverage."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.agreement import discrimination

BINARY = st.lists(st.sampled_from([0.0, 1.0]), max_size=20)
SCORES = st.lists(st.floats(0, 1), max_size=20)
SIDES = st.one_of(st.tuples(BINARY, BINARY), st.tuples(SCORES, SCORES), st.tuples(BINARY, SCORES))


def test_binary_scores_have_the_newcombe_interval() -> None:
    result = discrimination(np.arange(70) < 56, np.arange(80) < 48)
    assert (result.low, result.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)  # Newcombe 1998, table II
    assert (result.rate_right, result.rate_wrong, result.difference) == pytest.approx((0.8, 0.6, 0.2))
    assert (result.method, result.n_right, result.n_wrong, result.confidence_level) == ("newcombe", 70, 80, 0.95)


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


@settings(max_examples=40)
@given(SIDES, st.floats(0.001, 0.999))
def test_any_scores_give_finite_floats(
    assert_plain: Callable[[Any], None], sides: tuple[list[float], list[float]], confidence_level: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = discrimination(*sides, confidence_level=confidence_level)
    assert_plain(result)
    assert result.low is None or -1 <= result.low <= result.difference <= result.high <= 1  # type: ignore[operator]


def test_no_variation_on_both_sides_gives_no_interval() -> None:
    result = discrimination([0.9, 0.9], [0.1, 0.1, 0.1])
    assert (result.difference, result.low, result.high) == (pytest.approx(0.8), None, None)
    assert result.reason is not None and result.reason.endswith("no spread to compute an interval from")
