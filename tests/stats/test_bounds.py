"""worst_case_difference: however the missing values had come out, the difference lies between the two."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stats import worst_case_difference

NAN = float("nan")
SCORES = st.one_of(st.just(NAN), st.floats(-2, 3))
PAIRS = st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=4)


def all_ways(pairs: list[tuple[float, float]]) -> list[float]:
    """The mean differences with every missing value at -2 or at 3, in all ways."""
    numbers = [number for pair in pairs for number in pair]
    ways = product(*([number] if number == number else [-2.0, 3.0] for number in numbers))
    return [(sum(way[::2]) - sum(way[1::2])) / len(pairs) for way in ways]


@settings(deadline=None)
@given(PAIRS)
def test_the_bounds_are_the_worst_and_the_best_of_all_ways(pairs: list[tuple[float, float]]) -> None:
    found = worst_case_difference(*np.array(pairs).T, -2, 3)
    assert found == pytest.approx((min(all_ways(pairs)), max(all_ways(pairs))), abs=1e-9)
    assert [type(bound) for bound in found] == [float, float]


@settings(deadline=None)
@given(PAIRS)
def test_swapping_the_sides_swaps_the_bounds(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = np.array(pairs).T
    low, high = worst_case_difference(ours, theirs, -2, 3)
    assert worst_case_difference(theirs, ours, -2, 3) == pytest.approx((-high, -low), abs=1e-12)


def test_with_nothing_missing_both_are_the_difference() -> None:
    assert worst_case_difference([0.5, 1.0], [0.25, 0.25], 0, 1) == (0.5, 0.5)


def test_a_pair_missing_on_both_sides_could_have_been_anything() -> None:
    assert worst_case_difference([NAN], [NAN], 0, 1) == (-1.0, 1.0)


def test_none_is_missing_too() -> None:
    assert worst_case_difference([None, 1.0], [0.0, 0.0], 0, 1) == (0.5, 1.0)  # type: ignore[list-item]


def test_a_few_missing_leave_a_difference_and_many_do_not() -> None:
    candidate, baseline = np.ones(20), np.repeat([0.0, 1.0], [8, 12])
    candidate[-3:] = NAN
    assert worst_case_difference(candidate, baseline, 0, 1) == (0.25, 0.4)
    candidate[-9:] = NAN
    low, high = worst_case_difference(candidate, baseline, 0, 1)
    assert low < 0 < high


@pytest.mark.parametrize(
    ("candidate", "baseline", "lowest", "highest", "said"),
    [
        ([], [], 0, 1, "at least one pair"),
        ([0.5], [0.5], 1, 1, "bounds: got 1 to 1"),
        ([0.5], [0.5], 1, 0, "bounds"),
        ([0.5], [0.5], 0, float("inf"), "bounds"),
        ([0.5], [0.5], NAN, 1, "bounds"),
        ([0.5, 1.5], [0.5, 0.5], 0, 1, r"candidate\[1\]: got 1.5, wanted 0 to 1, or nan where missing"),
        ([0.5], [-0.5], 0, 1, r"baseline\[0\]: got -0.5"),
        ([float("inf")], [0.5], 0, 1, r"candidate\[0\]: got inf"),
        ([0.5], [0.5, 0.5], 0, 1, "got 1 values"),
        ([[0.5]], [[0.5]], 0, 1, "shape"),
    ],
)
def test_bad_input_is_refused(candidate: Any, baseline: Any, lowest: float, highest: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        worst_case_difference(candidate, baseline, lowest, highest)


@settings(deadline=None)
@given(st.lists(st.tuples(SCORES, SCORES, st.floats(0.5, 8)), min_size=1, max_size=4))
def test_weighted_bounds_are_the_worst_and_the_best_of_all_ways_too(rows: list[tuple[float, float, float]]) -> None:
    weights = [weight for *_, weight in rows]
    filled = product(*([s] if s == s else [-2.0, 3.0] for row in rows for s in row[:2]))
    means = [np.average(np.subtract(way[::2], way[1::2]), weights=weights) for way in filled]
    ours, theirs = np.array(rows).T[:2]
    found = worst_case_difference(ours, theirs, -2, 3, weights)
    assert found == pytest.approx((min(means), max(means)), abs=1e-9)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, NAN]], ids=str)
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        worst_case_difference([0.5, 1.0], [0.5, NAN], 0, 1, weights)
