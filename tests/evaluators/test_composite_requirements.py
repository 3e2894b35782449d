"""Composites with requirements."""

from typing import Any

import pytest
from composites_of_parts import FAILED, LOWER, SKIPPED, WITHOUT, composite_of, scored

from evalflows.evaluators.composite import Combined, Part


def required(
    requirements: dict[str, float], parts: dict[str, Part | float], missing: str = "fail", **declared: Any
) -> Combined:
    """Return a composite whose value is 0.75 if its requirements are met."""
    return composite_of(
        {"weights": ["a"], "requirements": requirements, "missing": missing}, {"a": 0.75} | parts, **declared
    )


@pytest.mark.parametrize(("value", "is_met"), [(3.0, True), (4.0, True), (2.999, False)])
def test_a_requirement_is_met_at_its_bound_in_the_unit_of_the_metric(value: float, is_met: bool) -> None:
    result = required({"stars": 3}, {"stars": value}, stars={"range": [1, 5]})
    assert (result.status, result.value) == ("scored", 0.75 if is_met else 0.0)
    assert result.comment == (None if is_met else f"requirement: stars is {value:g}, wanted at least 3")
    assert result.parts == {"a": 0.75}, "a requirement has no weight"


@pytest.mark.parametrize(("value", "is_met"), [(2.0, True), (0.0, True), (2.001, False)])
@pytest.mark.parametrize(("metric", "declared"), [("faults", LOWER), ("latency", {})])
def test_a_requirement_on_a_lower_is_better_metric_is_met_up_to_its_bound(
    metric: str, declared: dict[str, Any], value: float, is_met: bool
) -> None:
    """A built-in measure needs neither a direction nor a range."""
    result = required({metric: 2}, {metric: value}, **{metric: declared})
    assert (result.value, result.comment) == (
        (0.75, None) if is_met else (0.0, f"requirement: {metric} is {value:g}, wanted at most 2")
    )


def test_a_metric_can_be_part_and_requirement() -> None:
    assert composite_of({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.5}).value == 0.5
    assert composite_of({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.49}).value == 0.0


def test_all_requirements_must_be_met_and_the_first_unmet_one_is_named() -> None:
    assert required({"b": 1, "c": 1}, {"b": 1.0, "c": 1.0}).value == 0.75
    result = required({"b": 1, "c": 1, "d": 1}, {"b": 1.0, "c": 0.0, "d": 0.5})
    assert (result.value, result.comment) == (0.0, "requirement: c is 0, wanted at least 1")


def test_a_requirement_whose_metric_does_not_apply_is_ignored() -> None:
    assert required({"b": 1}, {"b": WITHOUT}).value == 0.75
    result = composite_of({"weights": ["a"], "requirements": {"b": 1}}, {"a": WITHOUT, "b": 1.0})
    assert (result.status, result.value) == ("not_applicable", None), "a met requirement makes no value"


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_requirement_on_a_label_makes_the_composite_fail(missing: str) -> None:
    result = required({"b": 1}, {"b": scored(None)}, missing)
    assert (result.status, result.value, result.error) == ("failed", None, "requirement b is a label, wanted a number")


@pytest.mark.parametrize("missing", ["fail", "leave_out"])
@pytest.mark.parametrize(
    ("part", "why"), [(FAILED, "HTTP 500"), (SKIPPED, "not_attempted"), (None, "no evaluator returned it")]
)
def test_a_missing_requirement_makes_the_composite_fail(part: Part | None, why: str, missing: str) -> None:
    """It cannot be left out, since it would then be unknown whether it is met."""
    result = required({"b": 1}, {} if part is None else {"b": part}, missing)
    assert (result.status, result.value, result.error) == ("failed", None, f"requirement b is missing: {why}")


def test_a_missing_requirement_can_count_as_unmet() -> None:
    result = required({"b": 1}, {"b": FAILED}, "worst")
    assert (result.status, result.value, result.comment) == ("scored", 0.0, "requirement: b is missing")


@pytest.mark.parametrize("order", [["b", "c"], ["c", "b"]])
@pytest.mark.parametrize(
    ("bad", "said"), [(FAILED, "requirement b is missing: HTTP 500"), (scored(None), "requirement b is a label")]
)
def test_the_order_of_requirements_does_not_matter(order: list[str], bad: Part, said: str) -> None:
    """One requirement is unmet, the other cannot be checked."""
    result = required(dict.fromkeys(order, 1.0), {"b": bad, "c": 0.0})
    assert result.status == "failed" and result.error is not None and result.error.startswith(said)


def test_an_unmet_requirement_gives_0_despite_a_missing_part_only_if_parts_can_be_left_out() -> None:
    parts: dict[str, Part | float] = {"a": FAILED, "b": 0.0}
    assert required({"b": 1}, parts, "fail").status == "failed"
    assert required({"b": 1}, parts, "leave_out").value == 0.0
