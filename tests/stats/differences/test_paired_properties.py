"""paired_difference: invariances, and finite results for any finite input."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.paired import paired_difference

STEPS = st.integers(-800, 800).map(lambda steps: steps / 8)  # sums of them are exact
KEYS = st.sampled_from(["a", "b", "c", None])
PAIRS = st.lists(st.tuples(STEPS, STEPS, KEYS), max_size=30)
BINARY_PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), KEYS), max_size=30)


def both(pairs: list[Any], *, clustered: bool, binary: bool, swap: bool = False, confidence_level: float = 0.95) -> Any:
    candidate, baseline, keys = ([*column] for column in zip(*pairs, strict=True)) if pairs else ([], [], [])
    sides = (baseline, candidate) if swap else (candidate, baseline)
    return paired_difference(*sides, keys if clustered else None, binary=binary, confidence_level=confidence_level)


def negative(number: float | None) -> float | None:
    return None if number is None else -number


@settings(max_examples=40)
@given(st.one_of(st.tuples(PAIRS, st.just(False)), st.tuples(BINARY_PAIRS, st.booleans())), st.booleans())
def test_swapping_the_sides_changes_the_sign_and_keeps_p(data: tuple[list[Any], bool], clustered: bool) -> None:
    pairs, binary = data
    original, other = (both(pairs, clustered=clustered, binary=binary, swap=swap) for swap in (False, True))
    assert original.difference == pytest.approx(negative(other.difference), abs=1e-12)
    assert (original.low, original.high) == pytest.approx((negative(other.high), negative(other.low)), abs=1e-9)
    assert (original.p_value, original.method, original.reason) == (
        pytest.approx(other.p_value),
        other.method,
        other.reason,
    )


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-1e200, 1e200), st.floats(-1e200, 1e200), KEYS), max_size=8),
    st.booleans(),
    st.floats(0.001, 0.999),
)
def test_finite_input_gives_finite_floats_without_a_warning(
    assert_plain: Callable[[Any], None], pairs: list[Any], clustered: bool, confidence_level: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = both(pairs, clustered=clustered, binary=False, confidence_level=confidence_level)
    assert_plain(result)
    assert result.p_value is None or 0 <= result.p_value <= 1


@settings(max_examples=40)
@given(st.floats(-1e200, 1e200), st.floats(-1e200, 1e200), st.integers(2, 1500), st.booleans())
def test_constant_sides_give_the_sign_flip_test_without_a_warning(
    assert_plain: Callable[[Any], None], ours: float, theirs: float, n: int, clustered: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = both([(ours, theirs, k % 2) for k in range(n)], clustered=clustered, binary=False)
    assert_plain(result)
    assert (result.difference, result.low) == (ours - theirs, None)
    assert result.p_value is not None and result.method.startswith("no interval; exact sign-flip")
