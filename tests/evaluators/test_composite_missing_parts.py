"""Composites with parts that are missing, not applicable or not drawn."""

from typing import Any, Literal

import pytest
from composites_of_parts import FAILED, LOWER, SKIPPED, UNDRAWN, WITHOUT, composite_of, scored, weighted

from evalflows.evaluators.composite import Combined, Part

# Missing


@pytest.mark.parametrize(
    ("part", "why"), [(FAILED, "HTTP 500"), (SKIPPED, "not_attempted"), (None, "no evaluator returned it")]
)
def test_a_missing_part_makes_the_composite_missing_and_says_why(part: Part | None, why: str) -> None:
    result = weighted({"a": 1, "b": 1}, {"b": 1.0} | ({"a": part} if part else {}))
    assert (result.status, result.value, result.error) == ("failed", None, f"a is missing: {why}")


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
def test_a_missing_part_may_be_left_out_with_its_weight(part: Part | None) -> None:
    parts: dict[str, Part | float] = {"b": 1.0, "c": 0.0} | ({"a": part} if part else {})
    result = weighted({"a": 9, "b": 3, "c": 1}, parts, "leave_out")
    assert (result.status, result.value, result.error) == ("scored", 0.75, None)
    assert result.parts == {"a": None, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize("part", [FAILED, SKIPPED, None])
@pytest.mark.parametrize("declared", [{}, LOWER, {"range": [1, 5]}, {"range": [-5, -1], **LOWER}])
def test_a_missing_part_may_count_as_the_worst(part: Part | None, declared: dict[str, Any]) -> None:
    parts: dict[str, Part | float] = {"b": 1.0} | ({"a": part} if part else {})
    result = weighted({"a": 1, "b": 3}, parts, "worst", a=declared)
    assert (result.status, result.value, result.parts) == ("scored", 0.75, {"a": 0.0, "b": 1.0})


def test_where_all_parts_are_missing_so_is_the_composite() -> None:
    parts: dict[str, Part | float] = {"a": FAILED, "b": SKIPPED}
    assert weighted({"a": 1, "b": 1, "c": 1}, parts, "fail").status == "failed"
    result = weighted({"a": 1, "b": 1, "c": 1}, parts, "leave_out")
    assert (result.status, result.value, result.error) == ("failed", None, "every part is missing")
    assert result.parts == {"a": None, "b": None, "c": None}


def test_where_all_parts_are_missing_and_count_as_the_worst_so_does_the_composite() -> None:
    result = weighted({"a": 1, "b": 1}, {"a": FAILED}, "worst")
    assert (result.status, result.value, result.error) == ("scored", 0.0, None)


# Not applicable


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_part_that_does_not_apply_is_left_out_with_its_weight(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 9, "b": 3, "c": 1}, {"a": WITHOUT, "b": 1.0, "c": 0.0}, missing)
    assert (result.status, result.value, result.parts) == ("scored", 0.75, {"b": 1.0, "c": 0.0})


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_where_no_part_applies_neither_does_the_composite(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": WITHOUT}, missing)
    assert result == Combined(status="not_applicable", value=None, error=None, parts={})


@pytest.mark.parametrize(("missing", "status"), [("fail", "failed"), ("leave_out", "failed"), ("worst", "scored")])
def test_where_one_part_does_not_apply_and_the_other_is_missing_it_is_as_if_there_were_only_this(
    missing: Literal["fail", "leave_out", "worst"], status: str
) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": FAILED}, missing)
    assert (result.status, result.value) == (status, 0.0 if missing == "worst" else None)


def test_a_part_of_no_value_is_no_zero() -> None:
    """A zero counts; what has no value does not."""
    assert weighted({"a": 1, "b": 1}, {"a": 0.0, "b": 1.0}).value == 0.5
    assert weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": 1.0}).value == 1.0


# Not sampled


@pytest.mark.parametrize("beside", [1.0, FAILED, SKIPPED, WITHOUT, None, scored(None), 7.0], ids=str)
@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
@pytest.mark.parametrize("undrawn", ["a", "c"])
def test_where_a_part_or_a_requirement_was_not_drawn_the_composite_is_not_either(
    undrawn: str, missing: str, beside: Part | float | None
) -> None:
    """Whatever else there is: the composite is that of the sample, also where another part is at fault."""
    parts: dict[str, Part | float] = {"a": 1.0, "c": 1.0} | ({} if beside is None else {"b": beside})
    result = composite_of(
        {"weights": ["a", "b"], "requirements": {"c": 1}, "missing": missing}, parts | {undrawn: UNDRAWN}
    )
    assert result == Combined(status="sampled_out", parts={})


def test_what_is_no_part_of_it_may_be_undrawn() -> None:
    assert weighted({"a": 1}, {"a": 1.0, "other": UNDRAWN}).status == "scored"
