"""Composites: the weighted mean, scaling, and the other aggregations."""

from typing import Literal

import pytest
from composites_of_parts import (
    FAILED,
    LOWER,
    PARTS,
    WITHOUT,
    composite_of,
    composite_of_one,
    scored,
    shares,
    weighted,
    weights,
)
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.composite import Part
from evalflows.specs.metric_names import MEASURES

# The mean


@pytest.mark.parametrize(
    ("weights", "value"),
    [
        ({"a": 1, "b": 1}, 0.5),
        ({"a": 3, "b": 1}, 0.75),
        ({"a": 0.3, "b": 0.1}, 0.75),
        ({"a": 1}, 1.0),
        ({"b": 7}, 0.0),
        ({"a": 1e-9, "b": 1e9}, 1e-18),
    ],
)
def test_the_parts_are_weighted(weights: dict[str, float], value: float) -> None:
    result = weighted(weights, {"a": 1, "b": 0, "not weighed": 1})
    assert (result.status, result.error) == ("scored", None)
    assert result.value == pytest.approx(value)
    assert result.parts == {metric: {"a": 1.0, "b": 0.0}[metric] for metric in weights}


@given(st.lists(st.tuples(weights, shares), min_size=1, max_size=5))
def test_the_mean_lies_between_its_parts(weighed: list[tuple[float, float]]) -> None:
    names = "abcde"[: len(weighed)]
    result = weighted(
        {name: weight for name, (weight, _) in zip(names, weighed, strict=True)},
        {name: share for name, (_, share) in zip(names, weighed, strict=True)},
    )
    assert result.value is not None
    low, high = min(share for _, share in weighed), max(share for _, share in weighed)
    assert low - 1e-12 <= result.value <= min(1.0, high + 1e-12)


@given(weights, weights, shares, shares, st.floats(1e-3, 1e3))
def test_the_order_and_the_sum_of_the_weights_do_not_matter(
    one_weight: float, other_weight: float, one_share: float, other_share: float, factor: float
) -> None:
    parts: dict[str, Part | float] = {"a": one_share, "b": other_share}
    result = weighted({"a": one_weight, "b": other_weight}, parts).value
    assert weighted({"b": other_weight, "a": one_weight}, parts).value == pytest.approx(result)
    assert weighted({"a": factor * one_weight, "b": factor * other_weight}, parts).value == pytest.approx(result)


# Scaling


@pytest.mark.parametrize(
    ("value", "bounds", "share"),
    [
        (3, [1, 5], 0.5),
        (1, [1, 5], 0.0),
        (5, [1, 5], 1.0),
        (-3, [-4, 0], 0.25),
        (0.5, [0, 1], 0.5),
        (0, [-1, 1], 0.5),
        (1e9, [0, 1e9], 1.0),
    ],
)
def test_a_part_is_scaled_by_its_range_and_direction(value: float, bounds: list[float], share: float) -> None:
    assert composite_of_one(value, range=bounds).value == share
    assert composite_of_one(value, range=bounds).parts == {"a": share}
    assert composite_of_one(value, range=bounds, **LOWER).value == 1 - share


@pytest.mark.parametrize(("value", "share"), [(0, 0.0), (0.25, 0.25), (1, 1.0), (True, 1.0), (False, 0.0)])
def test_without_a_range_a_part_lies_between_0_and_1(value: float, share: float) -> None:
    assert composite_of_one(value).value == share
    assert composite_of_one(value, **LOWER).value == 1 - share


@pytest.mark.parametrize("value", [-0.001, 1.001, 5, -1e300, float("inf"), float("nan")])
def test_a_score_out_of_its_range_makes_the_composite_fail(value: float) -> None:
    result = weighted({"b": 1, "a": 1}, {"b": 1, "a": value})
    assert (result.status, result.value) == ("failed", None)
    assert result.error == f"a: got {value:g}, wanted 0 to 1 (metrics: {{a: {{range: …}}}})"


def test_the_error_names_the_declared_range() -> None:
    assert composite_of_one(7, range=[1, 5]).error == "a: got 7, wanted 1 to 5 (metrics: {a: {range: …}})"


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("value", "share"), [(0, 1.0), (2.5, 0.75), (10, 0.0), (11, 0.0), (1e9, 0.0), (-1, 1.0)])
def test_a_measure_out_of_its_range_counts_as_the_bound(measure: str, value: float, share: float) -> None:
    assert composite_of_one(value, measure, range=[0, 10], **LOWER).value == share
    assert composite_of_one(value, measure, range=[0, 10], higher_is_better=True).value == 1 - share


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_label_makes_the_composite_fail(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": scored(None), "b": 1}, missing)
    assert (result.status, result.value, result.error) == ("failed", None, "a is a label, wanted a number")


# Aggregations


@pytest.mark.parametrize(
    ("aggregation", "value"),
    [
        ("weighted_mean", 0.4375),  # (0.25 + 3 * 0.5) / 4
        ("geometric_mean", 0.03125**0.25),  # (0.25 * 0.5 * 0.5 * 0.5) ** (1 / 4) = 0.4204
        ("minimum", 0.25),
    ],
)
def test_each_aggregation_equals_a_hand_computed_value(aggregation: str, value: float) -> None:
    result = composite_of({"weights": {"a": 1, "b": 3}, "aggregation": aggregation}, PARTS)
    assert (result.status, result.value) == ("scored", pytest.approx(value, rel=1e-12))
    assert result.parts == {"a": 0.25, "b": 0.5}


@pytest.mark.parametrize(("aggregation", "value"), [("weighted_mean", 0.75), ("geometric_mean", 0.0), ("minimum", 0.0)])
def test_a_part_of_0_makes_the_geometric_mean_and_the_minimum_0(aggregation: str, value: float) -> None:
    assert composite_of({"weights": {"a": 1, "b": 3}, "aggregation": aggregation}, {"a": 0.0, "b": 1.0}).value == value


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean", "minimum"])
def test_each_aggregation_scales_and_flips_the_parts_first(aggregation: str) -> None:
    """2 of at most 10 seconds and 4.2 stars of 1 to 5 are both scaled to 0.8."""
    declared = {"latency": {"range": [0, 10], **LOWER}, "stars": {"range": [1, 5]}}
    result = composite_of(
        {"weights": {"latency": 2, "stars": 1}, "aggregation": aggregation}, {"latency": 2.0, "stars": 4.2}, **declared
    )
    assert result.value == pytest.approx(0.8)


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean", "minimum"])
def test_each_aggregation_ignores_parts_that_do_not_apply_or_are_left_out(aggregation: str) -> None:
    said = {"weights": ["a", "b", "c"], "aggregation": aggregation, "missing": "leave_out"}
    result = composite_of(said, {"a": 0.5, "b": WITHOUT, "c": FAILED})
    assert (result.value, result.parts) == (pytest.approx(0.5), {"a": 0.5, "c": None})


@given(st.lists(st.tuples(weights, shares), min_size=1, max_size=5))
def test_minimum_geometric_mean_and_mean_are_in_order(weighed: list[tuple[float, float]]) -> None:
    """For the same parts, minimum <= geometric mean <= weighted mean."""
    said = {str(index): weight for index, (weight, _) in enumerate(weighed)}
    parts: dict[str, Part | float] = {str(index): share for index, (_, share) in enumerate(weighed)}
    ways = ("minimum", "geometric_mean", "weighted_mean")
    values = [composite_of({"weights": said, "aggregation": way}, parts).value or 0.0 for way in ways]
    assert all(low <= high + 1e-12 for low, high in zip(values, [*values[1:], 1.0], strict=True))
