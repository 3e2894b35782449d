"""Composites: the weighted mean of scaled parts, and what becomes of one that is missing, a label, or out of range."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.composite import Combined, Part, combined
from specs.metric import MEASURES, CompositeSpec, MetricSpec

LOWER = {"higher_is_better": False}


def scored(value: float | None) -> Part:
    return Part(value=value, status="scored")


FAILED = Part(value=None, status="failed", error="HTTP 500")
SKIPPED = Part(value=None, status="not_attempted")
WITHOUT = Part(value=None, status="not_applicable")
UNDRAWN = Part(value=None, status="sampled_out")


def made(
    weights: dict[str, float],
    parts: dict[str, Part | float],
    missing: Literal["fail", "leave_out", "worst"] = "fail",
    **declared: dict[str, Any],
) -> Combined:
    given_parts = {metric: part if isinstance(part, Part) else scored(part) for metric, part in parts.items()}
    metrics = {metric: MetricSpec.model_validate(declared.get(metric, {})) for metric in weights}
    return combined(CompositeSpec(name="quality", weights=weights, missing=missing), given_parts, metrics)


def one(value: float | None, metric: str = "a", **declared: Any) -> Combined:
    """A composite of just one part."""
    return made({metric: 1}, {metric: scored(value)}, **{metric: declared})


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
def test_the_parts_are_weighed(weights: dict[str, float], value: float) -> None:
    found = made(weights, {"a": 1, "b": 0, "not weighed": 1})
    assert (found.status, found.error) == ("scored", None)
    assert found.value == pytest.approx(value)
    assert found.parts == {metric: {"a": 1.0, "b": 0.0}[metric] for metric in weights}


shares = st.floats(0, 1)
weights = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(weights, shares), min_size=1, max_size=5))
def test_the_mean_lies_between_its_parts(weighed: list[tuple[float, float]]) -> None:
    names = "abcde"[: len(weighed)]
    found = made(
        {name: weight for name, (weight, _) in zip(names, weighed, strict=True)},
        {name: share for name, (_, share) in zip(names, weighed, strict=True)},
    )
    assert found.value is not None
    low, high = min(share for _, share in weighed), max(share for _, share in weighed)
    assert low - 1e-12 <= found.value <= min(1.0, high + 1e-12)


@given(weights, weights, shares, shares, st.floats(1e-3, 1e3))
def test_neither_the_order_nor_the_sum_of_the_weights_counts(
    one_weight: float, other_weight: float, one_share: float, other_share: float, factor: float
) -> None:
    parts: dict[str, Part | float] = {"a": one_share, "b": other_share}
    found = made({"a": one_weight, "b": other_weight}, parts).value
    assert made({"b": other_weight, "a": one_weight}, parts).value == pytest.approx(found)
    assert made({"a": factor * one_weight, "b": factor * other_weight}, parts).value == pytest.approx(found)


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
    assert one(value, range=bounds).value == share
    assert one(value, range=bounds).parts == {"a": share}
    assert one(value, range=bounds, **LOWER).value == 1 - share


@pytest.mark.parametrize(("value", "share"), [(0, 0.0), (0.25, 0.25), (1, 1.0), (True, 1.0), (False, 0.0)])
def test_without_a_range_a_part_lies_between_0_and_1(value: float, share: float) -> None:
    assert one(value).value == share
    assert one(value, **LOWER).value == 1 - share


@pytest.mark.parametrize("value", [-0.001, 1.001, 5, -1e300, float("inf"), float("nan")])
def test_a_score_out_of_its_range_makes_the_composite_fail(value: float) -> None:
    found = made({"b": 1, "a": 1}, {"b": 1, "a": value})
    assert (found.status, found.value) == ("failed", None)
    assert found.error == f"a: got {value:g}, wanted 0 to 1 (metrics: {{a: {{range: …}}}})"


def test_a_range_that_is_declared_is_told() -> None:
    assert one(7, range=[1, 5]).error == "a: got 7, wanted 1 to 5 (metrics: {a: {range: …}})"


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("value", "share"), [(0, 1.0), (2.5, 0.75), (10, 0.0), (11, 0.0), (1e9, 0.0), (-1, 1.0)])
def test_a_measure_out_of_its_range_counts_as_the_bound(measure: str, value: float, share: float) -> None:
    assert one(value, measure, range=[0, 10], **LOWER).value == share
    assert one(value, measure, range=[0, 10], higher_is_better=True).value == 1 - share


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_label_makes_the_composite_fail(missing: Literal["fail", "leave_out", "worst"]) -> None:
    found = made({"a": 1, "b": 1}, {"a": scored(None), "b": 1}, missing)
    assert (found.status, found.value, found.error) == ("failed", None, "a is a label, wanted a number")


# Missing


@pytest.mark.parametrize(
    ("part", "why"), [(FAILED, "HTTP 500"), (SKIPPED, "not_attempted"), (None, "no evaluator gave it")]
)
def test_a_missing_part_makes_the_composite_missing_and_says_why(part: Part | None, why: str) -> None:
    found = made({"a": 1, "b": 1}, {"b": 1.0} | ({"a": part} if part else {}))
    assert (found.status, found.value, found.error) == ("failed", None, f"a is missing: {why}")


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
def test_a_missing_part_may_be_left_out_with_its_weight(part: Part | None) -> None:
    parts: dict[str, Part | float] = {"b": 1.0, "c": 0.0} | ({"a": part} if part else {})
    found = made({"a": 9, "b": 3, "c": 1}, parts, "leave_out")
    assert (found.status, found.value, found.error) == ("scored", 0.75, None)
    assert found.parts == {"a": None, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
@pytest.mark.parametrize("declared", [{}, LOWER, {"range": [1, 5]}, {"range": [-5, -1], **LOWER}])
def test_a_missing_part_may_count_as_the_worst(part: Part | None, declared: dict[str, Any]) -> None:
    parts: dict[str, Part | float] = {"b": 1.0} | ({"a": part} if part else {})
    found = made({"a": 1, "b": 3}, parts, "worst", a=declared)
    assert (found.status, found.value, found.parts) == ("scored", 0.75, {"a": 0.0, "b": 1.0})


def test_where_all_parts_are_missing_so_is_the_composite() -> None:
    parts: dict[str, Part | float] = {"a": FAILED, "b": SKIPPED}
    assert made({"a": 1, "b": 1, "c": 1}, parts, "fail").status == "failed"
    found = made({"a": 1, "b": 1, "c": 1}, parts, "leave_out")
    assert (found.status, found.value, found.error) == ("failed", None, "every part is missing")
    assert found.parts == {"a": None, "b": None, "c": None}


def test_where_all_parts_are_missing_and_count_as_the_worst_so_does_the_composite() -> None:
    found = made({"a": 1, "b": 1}, {"a": FAILED}, "worst")
    assert (found.status, found.value, found.error) == ("scored", 0.0, None)


# Not applicable


@pytest.mark.parametrize("part", [WITHOUT, UNDRAWN])
@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_part_that_does_not_apply_is_left_out_with_its_weight(
    part: Part, missing: Literal["fail", "leave_out", "worst"]
) -> None:
    found = made({"a": 9, "b": 3, "c": 1}, {"a": part, "b": 1.0, "c": 0.0}, missing)
    assert (found.status, found.value, found.parts) == ("scored", 0.75, {"b": 1.0, "c": 0.0})


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_where_no_part_applies_neither_does_the_composite(missing: Literal["fail", "leave_out", "worst"]) -> None:
    found = made({"a": 1, "b": 1}, {"a": WITHOUT, "b": UNDRAWN}, missing)
    assert found == Combined(status="not_applicable", value=None, error=None, parts={})


@pytest.mark.parametrize(("missing", "status"), [("fail", "failed"), ("leave_out", "failed"), ("worst", "scored")])
def test_where_one_part_does_not_apply_and_the_other_is_missing_it_is_as_if_there_were_only_this(
    missing: Literal["fail", "leave_out", "worst"], status: str
) -> None:
    found = made({"a": 1, "b": 1}, {"a": WITHOUT, "b": FAILED}, missing)
    assert (found.status, found.value) == (status, 0.0 if missing == "worst" else None)


def test_a_part_of_no_value_is_no_zero() -> None:
    """A zero counts; what has no value does not."""
    assert made({"a": 1, "b": 1}, {"a": 0.0, "b": 1.0}).value == 0.5
    assert made({"a": 1, "b": 1}, {"a": WITHOUT, "b": 1.0}).value == 1.0
