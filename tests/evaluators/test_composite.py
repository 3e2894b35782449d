"""Composites: aggregation, scaling, missing parts, requirements, the user's own function, versions."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from user_places import without_places

from evalflows.engine.spec_evaluators import composite_version
from evalflows.evaluators.composite import Combined, Function, MetricPart, combined
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.metrics import CompositeSpec, MetricSpec

LOWER = {"higher_is_better": False}


def scored(value: float | None) -> MetricPart:
    return MetricPart(value=value, status="scored")


FAILED = MetricPart(value=None, status="failed", error="HTTP 500")
SKIPPED = MetricPart(value=None, status="not_attempted")
WITHOUT = MetricPart(value=None, status="not_applicable")
UNDRAWN = MetricPart(value=None, status="sampled_out")


def weighted(
    weights: dict[str, float],
    parts: dict[str, MetricPart | float],
    missing: Literal["fail", "leave_out", "worst"] = "fail",
    **declared: dict[str, Any],
) -> Combined:
    return composite_of({"weights": weights, "missing": missing}, parts, **declared)


def composite_of(
    fields: dict[str, Any],
    parts: dict[str, MetricPart | float],
    function: Function | None = None,
    **declared: dict[str, Any],
) -> Combined:
    """Return the composite of a spec with the given fields."""
    composite = CompositeSpec.model_validate({"name": "quality"} | fields)
    given_parts = {metric: part if isinstance(part, MetricPart) else scored(part) for metric, part in parts.items()}
    metrics = {metric: MetricSpec.model_validate(declared.get(metric, {})) for metric in composite.metrics}
    return combined(composite, given_parts, metrics, function)


def composite_of_one(value: float | None, metric: str = "a", **declared: Any) -> Combined:
    """Return the composite of a single part."""
    return weighted({metric: 1}, {metric: scored(value)}, **{metric: declared})


shares = st.floats(0, 1)
weights = st.floats(1e-3, 1e3)
PARTS: dict[str, MetricPart | float] = {"a": 0.25, "b": 0.5}


@given(weights, weights, shares, shares, st.floats(1e-3, 1e3))
def test_the_order_and_the_sum_of_the_weights_do_not_matter(
    one_weight: float, other_weight: float, one_share: float, other_share: float, factor: float
) -> None:
    parts: dict[str, MetricPart | float] = {"a": one_share, "b": other_share}
    result = weighted({"a": one_weight, "b": other_weight}, parts).value
    assert weighted({"b": other_weight, "a": one_weight}, parts).value == pytest.approx(result)
    assert weighted({"a": factor * one_weight, "b": factor * other_weight}, parts).value == pytest.approx(result)


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


@pytest.mark.parametrize("value", [-0.001, 1.001, 5, -1e300, float("inf"), float("nan")])
def test_a_score_out_of_its_range_makes_the_composite_fail(value: float) -> None:
    result = weighted({"b": 1, "a": 1}, {"b": 1, "a": value})
    assert (result.status, result.value) == ("failed", None)
    assert result.error == f"a: got {value:g}, wanted 0 to 1 (metrics: {{a: {{range: …}}}})"


def test_a_measure_out_of_its_range_counts_as_the_bound() -> None:
    for value, share in ((0, 1.0), (2.5, 0.75), (10, 0.0), (11, 0.0), (1e9, 0.0), (-1, 1.0)):
        for measure in MEASURES:
            assert composite_of_one(value, measure, range=[0, 10], **LOWER).value == share
    assert composite_of_one(value, measure, range=[0, 10], higher_is_better=True).value == 1 - share


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_label_makes_the_composite_fail(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 1, "b": 1}, {"a": scored(None), "b": 1}, missing)
    assert (result.status, result.value, result.error) == ("failed", None, "a is a label, wanted a number")


AGGREGATIONS = ("weighted_mean", "geometric_mean", "minimum")
MISSING: tuple[Literal["fail", "leave_out", "worst"], ...] = ("fail", "leave_out", "worst")
GONE = {FAILED: "HTTP 500", SKIPPED: "not_attempted", None: "no evaluator returned it"}
"""What a part or a requirement may be whose value is missing, and how it is told."""


def test_each_aggregation_equals_a_hand_computed_value_of_the_scaled_parts_that_there_are() -> None:
    for aggregation, value in zip(AGGREGATIONS, (0.4375, 0.03125**0.25, 0.25), strict=True):
        # (0.25 + 3 * 0.5) / 4, and (0.25 * 0.5 * 0.5 * 0.5) ** (1 / 4)
        result = composite_of({"weights": {"a": 1, "b": 3}, "aggregation": aggregation}, PARTS)
        assert (result.status, result.value) == ("scored", pytest.approx(value, rel=1e-12))
        assert result.parts == {"a": 0.25, "b": 0.5}
        # 2 of at most 10 seconds and 4.2 stars of 1 to 5 are both scaled to 0.8
        declared = {"latency": {"range": [0, 10], **LOWER}, "stars": {"range": [1, 5]}}
        said = {"weights": {"latency": 2, "stars": 1}, "aggregation": aggregation}
        assert composite_of(said, {"latency": 2.0, "stars": 4.2}, **declared).value == pytest.approx(0.8)
        said = {"weights": ["a", "b", "c"], "aggregation": aggregation, "missing": "leave_out"}
        result = composite_of(said, {"a": 0.5, "b": WITHOUT, "c": FAILED})
        assert (result.value, result.parts) == (pytest.approx(0.5), {"a": 0.5, "c": None})


# Missing, not applicable, not sampled


@pytest.mark.parametrize(("part", "why"), GONE.items(), ids=GONE.values())
def test_a_missing_part_fails_the_composite_is_left_out_or_counts_as_the_worst(
    part: MetricPart | None, why: str
) -> None:
    beside: dict[str, MetricPart | float] = {} if part is None else {"a": part}
    result = weighted({"a": 1, "b": 1}, {"b": 1.0} | beside)
    assert (result.status, result.value, result.error) == ("failed", None, f"a is missing: {why}")
    result = weighted({"a": 9, "b": 3, "c": 1}, {"b": 1.0, "c": 0.0} | beside, "leave_out")
    assert (result.status, result.value, result.error) == ("scored", 0.75, None)
    assert result.parts == {"a": None, "b": 1.0, "c": 0.0}
    for declared in ({}, LOWER, {"range": [1, 5]}, {"range": [-5, -1], **LOWER}):
        result = weighted({"a": 1, "b": 3}, {"b": 1.0} | beside, "worst", a=declared)
        assert (result.status, result.value, result.parts) == ("scored", 0.75, {"a": 0.0, "b": 1.0})


def test_the_composite_fails_if_all_parts_are_missing_unless_they_count_as_the_worst() -> None:
    parts: dict[str, MetricPart | float] = {"a": FAILED, "b": SKIPPED}
    assert weighted({"a": 1, "b": 1, "c": 1}, parts, "fail").status == "failed"
    result = weighted({"a": 1, "b": 1, "c": 1}, parts, "leave_out")
    assert (result.status, result.value, result.error) == ("failed", None, "every part is missing")
    assert result.parts == {"a": None, "b": None, "c": None}
    result = weighted({"a": 1, "b": 1}, {"a": FAILED}, "worst")
    assert (result.status, result.value, result.error) == ("scored", 0.0, None)


@pytest.mark.parametrize("missing", MISSING)
def test_a_part_that_does_not_apply_is_left_out_with_its_weight(missing: Literal["fail", "leave_out", "worst"]) -> None:
    result = weighted({"a": 9, "b": 3, "c": 1}, {"a": WITHOUT, "b": 1.0, "c": 0.0}, missing)
    assert (result.status, result.value, result.parts) == ("scored", 0.75, {"b": 1.0, "c": 0.0})
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": WITHOUT}, missing)
    assert result == Combined(status="not_applicable", value=None, error=None, parts={})
    result = weighted({"a": 1, "b": 1}, {"a": WITHOUT, "b": FAILED}, missing)
    assert (result.status, result.value) == (("scored", 0.0) if missing == "worst" else ("failed", None))


@pytest.mark.parametrize("missing", MISSING)
def test_the_composite_is_sampled_out_if_a_part_or_a_requirement_is(missing: str) -> None:
    """The other parts do not matter, even if one of them is missing or invalid."""
    said = {"weights": ["a", "b"], "requirements": {"c": 1}, "missing": missing}
    for undrawn in ("a", "c"):
        for beside in (1.0, FAILED, SKIPPED, WITHOUT, None, scored(None), 7.0):
            parts: dict[str, MetricPart | float] = {"a": 1.0, "c": 1.0} | ({} if beside is None else {"b": beside})
            assert composite_of(said, parts | {undrawn: UNDRAWN}) == Combined(status="sampled_out", parts={})


# Requirements


def required(
    requirements: dict[str, float], parts: dict[str, MetricPart | float], missing: str = "fail", **declared: Any
) -> Combined:
    """Return a composite whose value is 0.75 if its requirements are met."""
    return composite_of(
        {"weights": ["a"], "requirements": requirements, "missing": missing}, {"a": 0.75} | parts, **declared
    )


@pytest.mark.parametrize(
    ("metric", "declared", "value", "unmet"),
    [
        ("stars", {"range": [1, 5]}, 3.0, None),
        ("stars", {"range": [1, 5]}, 4.0, None),
        ("stars", {"range": [1, 5]}, 2.999, "stars is 2.999, wanted at least 3"),
        *((metric, declared, 3.0, None) for metric, declared in (("faults", LOWER), ("latency", {}))),
        ("faults", LOWER, 3.001, "faults is 3.001, wanted at most 3"),
        ("latency", {}, 3.001, "latency is 3.001, wanted at most 3"),  # a measure needs neither direction nor range
    ],
)
def test_a_requirement_is_met_at_its_bound_in_the_unit_of_the_metric(
    metric: str, declared: dict[str, Any], value: float, unmet: str | None
) -> None:
    result = required({metric: 3}, {metric: value}, **{metric: declared})
    assert (result.status, result.value) == ("scored", 0.75 if unmet is None else 0.0)
    assert result.comment == (unmet and f"requirement: {unmet}")
    assert result.parts == {"a": 0.75}, "a requirement has no weight"


def test_a_requirement_may_be_a_part_and_is_ignored_where_it_does_not_apply() -> None:
    assert composite_of({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.5}).value == 0.5
    assert composite_of({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.49}).value == 0.0
    assert required({"b": 1, "c": 1}, {"b": 1.0, "c": 1.0}).value == 0.75
    result = required({"b": 1, "c": 1, "d": 1}, {"b": 1.0, "c": 0.0, "d": 0.5})
    assert (result.value, result.comment) == (0.0, "requirement: c is 0, wanted at least 1")
    assert required({"b": 1}, {"b": WITHOUT}).value == 0.75
    result = composite_of({"weights": ["a"], "requirements": {"b": 1}}, {"a": WITHOUT, "b": 1.0})
    assert (result.status, result.value) == ("not_applicable", None), "a met requirement makes no value"
    result = required({"b": 1}, {"b": FAILED}, "worst")
    assert (result.status, result.value, result.comment) == ("scored", 0.0, "requirement: b is missing")
    parts: dict[str, MetricPart | float] = {"a": FAILED, "b": 0.0}
    assert required({"b": 1}, parts, "fail").status == "failed"
    assert required({"b": 1}, parts, "leave_out").value == 0.0


def test_a_requirement_that_cannot_be_checked_makes_the_composite_fail() -> None:
    """It cannot be left out, since it would then be unknown whether it is met; the order does not matter."""
    label = {scored(None): "requirement b is a label, wanted a number"}
    for part, said in ({one: f"requirement b is missing: {why}" for one, why in GONE.items()} | label).items():
        for missing in MISSING[:2]:
            for order in (("b", "c"), ("c", "b")):
                parts: dict[str, MetricPart | float] = {"c": 0.0} | ({} if part is None else {"b": part})
                result = required(dict.fromkeys(order, 1.0), parts, missing)
                assert (result.status, result.value, result.error) == ("failed", None, said)
    assert required({"b": 1}, {"b": scored(None)}, "worst").status == "failed"


# The user's own function, and versions


def composite_by(function: Any, parts: dict[str, MetricPart | float] | None = None) -> Combined:
    return composite_of({"weights": ["a", "b"], "function": "m:f"}, parts or PARTS, function)


def test_a_function_gets_the_scaled_parts_and_returns_a_number_from_0_to_1_or_none() -> None:
    seen: list[Mapping[str, float]] = []

    def product(parts: Mapping[str, float]) -> float:
        seen.append(parts)
        return math.prod(parts.values())

    said = {"weights": ["a", "b"], "function": "m:f"}
    result = composite_of(said, {"a": 2.0, "b": 0.5}, product, a={"range": [0, 8], **LOWER})
    assert (result.status, result.value, result.parts) == ("scored", 0.375, {"a": 0.75, "b": 0.5})
    assert seen == [{"a": 0.75, "b": 0.5}]
    for value in (0.25, 0, 1, True, False, np.float32(0.5), np.int64(1)):
        result = composite_by(lambda parts, value=value: value)
        assert (result.status, result.value) == ("scored", float(value)) and type(result.value) is float
    assert composite_by(lambda parts: None) == Combined(status="not_applicable", parts={"a": 0.25, "b": 0.5})
    result = composite_by(lambda parts: parts["c"])
    assert result.status == "failed"
    assert without_places(result.error) == "the composite's function raised KeyError: 'c'"


@pytest.mark.parametrize("value", [1.2, -0.1, math.nan, math.inf, "0.5", [0.5], {}, 1j], ids=repr)
def test_an_invalid_return_value_makes_the_composite_fail(value: object) -> None:
    result = composite_by(lambda parts: value)
    assert (result.status, result.value) == ("failed", None)
    assert result.error == f"the composite's function returned {value!r}, wanted 0 to 1, or None"


def test_a_function_is_not_called_if_a_requirement_is_unmet_or_nothing_applies() -> None:
    def never(parts: object) -> float:
        raise AssertionError

    said = {"weights": ["a"], "function": "m:f", "requirements": {"b": 1}}
    assert composite_of(said, {"a": 1.0, "b": 0.0}, never).value == 0.0
    assert composite_of(said, {"a": WITHOUT, "b": 1.0}, never).status == "not_applicable"


def version(change: dict[str, Any] | None = None, **fields: Any) -> str:
    composite = CompositeSpec.model_validate({"name": "quality", "weights": {"a": 1, "b": 2}} | (change or {}))
    spec = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
    return composite_version(composite, ExperimentSpec.model_validate(spec | fields))


def test_a_version_changes_with_the_composite_and_the_directions_and_ranges_of_its_parts() -> None:
    changes: list[dict[str, Any]] = [
        *({}, {"weights": {"a": 1, "b": 3}}, {"aggregation": "minimum"}, {"aggregation": "geometric_mean"}),
        *({"missing": "worst"}, {"requirements": {"c": 1}}, {"requirements": {"c": 0.5}}),
        {"function": "odd_evaluators:steep"},
    ]
    versions = {version(change) for change in changes}
    assert len(versions) == len(changes) and versions == {version(change) for change in changes}
    strict = {"requirements": {"c": 1}}
    assert version(strict) != version(strict, metrics={"c": LOWER})
    assert version(strict) != version(strict, metrics={"a": {"range": [0, 5]}})
    assert version(strict) == version(strict, metrics={"other": LOWER}) == version(strict | {"name": "another"})


def test_the_source_of_the_users_function_is_part_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for module, value in (("one_way", 0.5), ("same_way", 0.5), ("other_way", 0.25)):
        source = f"""
            def own(parts):
                return {value}
        """
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
    assert version({"function": "one_way:own"}) == version({"function": "same_way:own"})
    assert version({"function": "one_way:own"}) != version({"function": "other_way:own"})
