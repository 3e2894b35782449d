"""Composites with parts that are missing, not applicable or not drawn."""

from typing import Any, Literal

import pytest
from composites_of_parts import FAILED, LOWER, SKIPPED, UNDRAWN, WITHOUT, composite_of, scored, weighted

from evalflows.evaluators.composite import Combined, Part

# Missing


@pytest.mark.parametrize(
    ("part", "why"), [(FAILED, "HTTP 500"), (SKIPPED, "not_attempted"), (None, "no evaluator returned it")]
)
def test_a_missing_part_makes_the_composite_fail_with_the_reason(part: Part | None, why: str) -> None:
    result = weighted({"a": 1, "b": 1}, {"b": 1.0} | ({"a": part} if part else {}))
    assert (result.status, result.value, result.error) == ("failed", None, f"a is missing: {why}")


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
def test_a_missing_part_can_be_left_out_with_its_weight(part: Part | None) -> None:
    parts: dict[str, Part | float] = {"b": 1.0, "c": 0.0} | ({"a": part} if part else {})
    result = weighted({"a": 9, "b": 3, "c": 1}, parts, "leave_out")
    assert (result.status, result.value, result.error) == ("scored", 0.75, None)
    assert result.parts == {"a": None, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
@pytest.mark.parametrize("declared", [{}, LOWER, {"range": [1, 5]}, {"range": [-5, -1], **LOWER}])
def test_a_missing_part_can_count_as_the_worst_value(part: Part | None, declared: dict[str, Any]) -> None:
    parts: dict[str, Part | float] = {"b": 1.0} | ({"a": part} if part else {})
    result = weighted({"a": 1, "b": 3}, parts, "worst", a=declared)
    assert (result.status, result.value, result.parts) == ("scored", 0.75, {"a": 0.0, "b": 1.0})


def test_the_composite_fails_if_all_parts_are_missing() -> None:
    parts: dict[str, Part | float] = {"a": FAILED, "b": SKIPPED}
    assert weighted({"a": 1, "b": 1, "c": 1}, parts, "fail").status == "failed"
    result = weighted({"a": 1, "b": 1, "c": 1}, parts, "leave_out")
    assert (result.status, result.value, result.error) == ("failed", None, "every part is missing")
    assert result.parts == {"a": None, "b": None, "c": None}


def test_the_composite_is_0_if_all_parts_are_missing_and_count_as_the_worst() -> None:
    result = weighted({"a": 1, "b": 1}, {"a": FAILED}, "worst")
    assert (result.status, result.value, result.error) == ("scored", 0.0, None)


# Not applicable


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_part_that_does_not_apply_is_left_out_with_its_weight(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 9, "b": 3, "c": 1}, {"a": WITHOUT, "b": 1.0, "c": 0.0}, missing)
    assert (result.status, result.value, result.parts) == ("scored", 0.75, {"b": 1.0, "c": 0.0})


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_the_composite_does_not_apply_if_no_part_applies(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": WITHOUT}, missing)
    assert result == Combined(status="not_applicable", value=None, error=None, parts={})


@pytest.mark.parametrize(("missing", "status"), [("fail", "failed"), ("leave_out", "failed"), ("worst", "scored")])
def test_a_missing_part_counts_alone_if_the_other_part_does_not_apply(
    missing: Literal["fail", "leave_out", "worst"], status: str
) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": FAILED}, missing)
    assert (result.status, result.value) == (status, 0.0 if missing == "worst" else None)


def test_a_part_without_a_value_is_not_0() -> None:
    """A zero counts; a part without a value does not."""
    assert weighted({"a": 1, "b": 1}, {"a": 0.0, "b": 1.0}).value == 0.5
    assert weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": 1.0}).value == 1.0


# Not sampled


@pytest.mark.parametrize("beside", [1.0, FAILED, SKIPPED, WITHOUT, None, scored(None), 7.0], ids=str)
@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
@pytest.mark.parametrize("undrawn", ["a", "c"])
def test_the_composite_is_sampled_out_if_a_part_or_a_requirement_is(
    undrawn: str, missing: str, beside: Part | float | None
) -> None:
    """The other parts do not matter, even if one of them is missing or invalid."""
    parts: dict[str, Part | float] = {"a": 1.0, "c": 1.0} | ({} if beside is None else {"b": beside})
    result = composite_of(
        {"weights": ["a", "b"], "requirements": {"c": 1}, "missing": missing}, parts | {undrawn: UNDRAWN}
    )
    assert result == Combined(status="sampled_out", parts={})


def test_a_sampled_out_metric_that_is_not_a_part_does_not_matter() -> None:
    assert weighted({"a": 1}, {"a": 1.0, "other": UNDRAWN}).status == "scored"
