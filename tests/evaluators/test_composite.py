"""Composites: combining scaled parts, requirements, and parts that are missing, labels, or out of range."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.composite import Combined, Function, Part, combined
from evalflows.execution.resolve import composite_version
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MEASURES, CompositeSpec, MetricSpec

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
    return whole({"weights": weights, "missing": missing}, parts, **declared)


def whole(
    said: dict[str, Any], parts: dict[str, Part | float], function: Function | None = None, **declared: dict[str, Any]
) -> Combined:
    """A composite of which a spec says this."""
    composite = CompositeSpec.model_validate({"name": "quality"} | said)
    given_parts = {metric: part if isinstance(part, Part) else scored(part) for metric, part in parts.items()}
    metrics = {metric: MetricSpec.model_validate(declared.get(metric, {})) for metric in composite.metrics}
    return combined(composite, given_parts, metrics, function)


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


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_part_that_does_not_apply_is_left_out_with_its_weight(missing: Literal["fail", "leave_out", "worst"]) -> None:
    found = made({"a": 9, "b": 3, "c": 1}, {"a": WITHOUT, "b": 1.0, "c": 0.0}, missing)
    assert (found.status, found.value, found.parts) == ("scored", 0.75, {"b": 1.0, "c": 0.0})


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_where_no_part_applies_neither_does_the_composite(missing: Literal["fail", "leave_out", "worst"]) -> None:
    found = made({"a": 1, "b": 1}, {"a": WITHOUT, "b": WITHOUT}, missing)
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


# Not drawn


@pytest.mark.parametrize("beside", [1.0, FAILED, SKIPPED, WITHOUT, None, scored(None), 7.0], ids=str)
@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
@pytest.mark.parametrize("undrawn", ["a", "c"])
def test_where_a_part_or_a_requirement_was_not_drawn_the_composite_is_not_either(
    undrawn: str, missing: str, beside: Part | float | None
) -> None:
    """Whatever else there is: the composite is that of the sample, also where another part is at fault."""
    parts: dict[str, Part | float] = {"a": 1.0, "c": 1.0} | ({} if beside is None else {"b": beside})
    found = whole({"weights": ["a", "b"], "requirements": {"c": 1}, "missing": missing}, parts | {undrawn: UNDRAWN})
    assert found == Combined(status="sampled_out", parts={})


def test_what_is_no_part_of_it_may_be_undrawn() -> None:
    assert made({"a": 1}, {"a": 1.0, "other": UNDRAWN}).status == "scored"


# How the parts become one: 0.25 with weight 1, 0.5 with weight 3

PARTS: dict[str, Part | float] = {"a": 0.25, "b": 0.5}


@pytest.mark.parametrize(
    ("aggregation", "value"),
    [
        ("weighted_mean", 0.4375),  # (0.25 + 3 * 0.5) / 4
        ("geometric_mean", 0.03125**0.25),  # (0.25 * 0.5 * 0.5 * 0.5) ** (1 / 4) = 0.4204
        ("minimum", 0.25),
    ],
)
def test_every_way_by_hand(aggregation: str, value: float) -> None:
    found = whole({"weights": {"a": 1, "b": 3}, "aggregation": aggregation}, PARTS)
    assert (found.status, found.value) == ("scored", pytest.approx(value, rel=1e-12))
    assert found.parts == {"a": 0.25, "b": 0.5}


@pytest.mark.parametrize(("aggregation", "value"), [("weighted_mean", 0.75), ("geometric_mean", 0.0), ("minimum", 0.0)])
def test_a_part_of_0_makes_the_geometric_mean_and_the_minimum_0(aggregation: str, value: float) -> None:
    assert whole({"weights": {"a": 1, "b": 3}, "aggregation": aggregation}, {"a": 0.0, "b": 1.0}).value == value


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean", "minimum"])
def test_in_every_way_parts_are_scaled_and_turned_first(aggregation: str) -> None:
    """2 seconds of at most 10 are 0.8, and 4.2 stars of 1 to 5 too."""
    declared = {"latency": {"range": [0, 10], **LOWER}, "stars": {"range": [1, 5]}}
    found = whole(
        {"weights": {"latency": 2, "stars": 1}, "aggregation": aggregation}, {"latency": 2.0, "stars": 4.2}, **declared
    )
    assert found.value == pytest.approx(0.8)


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean", "minimum"])
def test_in_every_way_a_part_that_does_not_apply_and_one_that_is_left_out_do_not_weigh(aggregation: str) -> None:
    said = {"weights": ["a", "b", "c"], "aggregation": aggregation, "missing": "leave_out"}
    found = whole(said, {"a": 0.5, "b": WITHOUT, "c": FAILED})
    assert (found.value, found.parts) == (pytest.approx(0.5), {"a": 0.5, "c": None})


@given(st.lists(st.tuples(weights, shares), min_size=1, max_size=5))
def test_the_ways_are_in_order(weighed: list[tuple[float, float]]) -> None:
    """The worst part, the geometric mean and the mean: of the same parts, none is above the next."""
    said = {str(index): weight for index, (weight, _) in enumerate(weighed)}
    parts: dict[str, Part | float] = {str(index): share for index, (_, share) in enumerate(weighed)}
    ways = ("minimum", "geometric_mean", "weighted_mean")
    values = [whole({"weights": said, "aggregation": way}, parts).value or 0.0 for way in ways]
    assert all(low <= high + 1e-12 for low, high in zip(values, [*values[1:], 1.0], strict=True))


# Gates


def required(
    requirements: dict[str, float], parts: dict[str, Part | float], missing: str = "fail", **declared: Any
) -> Combined:
    """A composite of 0.75 if its requirements are met."""
    return whole({"weights": ["a"], "requirements": requirements, "missing": missing}, {"a": 0.75} | parts, **declared)


@pytest.mark.parametrize(("value", "is_met"), [(3.0, True), (4.0, True), (2.999, False)])
def test_a_requirement_is_met_from_its_bound_on_in_the_metrics_own_unit(value: float, is_met: bool) -> None:
    found = required({"stars": 3}, {"stars": value}, stars={"range": [1, 5]})
    assert (found.status, found.value) == ("scored", 0.75 if is_met else 0.0)
    assert found.comment == (None if is_met else f"requirement: stars is {value:g}, wanted at least 3")
    assert found.parts == {"a": 0.75}, "a requirement has no weight"


@pytest.mark.parametrize(("value", "is_met"), [(2.0, True), (0.0, True), (2.001, False)])
@pytest.mark.parametrize(("metric", "declared"), [("faults", LOWER), ("latency", {})])
def test_where_less_is_better_a_requirement_is_met_up_to_its_bound(
    metric: str, declared: dict[str, Any], value: float, is_met: bool
) -> None:
    """Of a measure that goes without saying, and no range is needed."""
    found = required({metric: 2}, {metric: value}, **{metric: declared})
    assert (found.value, found.comment) == (
        (0.75, None) if is_met else (0.0, f"requirement: {metric} is {value:g}, wanted at most 2")
    )


def test_a_metric_may_be_part_and_requirement() -> None:
    assert whole({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.5}).value == 0.5
    assert whole({"weights": ["a"], "requirements": {"a": 0.5}}, {"a": 0.49}).value == 0.0


def test_all_requirements_must_be_met_and_the_first_unmet_one_is_named() -> None:
    assert required({"b": 1, "c": 1}, {"b": 1.0, "c": 1.0}).value == 0.75
    found = required({"b": 1, "c": 1, "d": 1}, {"b": 1.0, "c": 0.0, "d": 0.5})
    assert (found.value, found.comment) == (0.0, "requirement: c is 0, wanted at least 1")


def test_a_requirement_whose_metric_does_not_apply_is_ignored() -> None:
    assert required({"b": 1}, {"b": WITHOUT}).value == 0.75
    found = whole({"weights": ["a"], "requirements": {"b": 1}}, {"a": WITHOUT, "b": 1.0})
    assert (found.status, found.value) == ("not_applicable", None), "a met requirement makes no value"


@pytest.mark.parametrize("missing", ["fail", "leave_out", "worst"])
def test_a_requirement_on_a_label_makes_the_composite_fail(missing: str) -> None:
    found = required({"b": 1}, {"b": scored(None)}, missing)
    assert (found.status, found.value, found.error) == ("failed", None, "requirement b is a label, wanted a number")


@pytest.mark.parametrize("missing", ["fail", "leave_out"])
@pytest.mark.parametrize(
    ("part", "why"), [(FAILED, "HTTP 500"), (SKIPPED, "not_attempted"), (None, "no evaluator gave it")]
)
def test_a_requirement_that_is_missing_makes_the_composite_missing(part: Part | None, why: str, missing: str) -> None:
    """It cannot be left out: then nobody would know whether it holds."""
    found = required({"b": 1}, {} if part is None else {"b": part}, missing)
    assert (found.status, found.value, found.error) == ("failed", None, f"requirement b is missing: {why}")


def test_a_requirement_that_is_missing_may_count_as_unmet() -> None:
    found = required({"b": 1}, {"b": FAILED}, "worst")
    assert (found.status, found.value, found.comment) == ("scored", 0.0, "requirement: b is missing")


@pytest.mark.parametrize("order", [["b", "c"], ["c", "b"]])
@pytest.mark.parametrize(
    ("bad", "said"), [(FAILED, "requirement b is missing: HTTP 500"), (scored(None), "requirement b is a label")]
)
def test_it_does_not_count_in_which_order_requirements_stand(order: list[str], bad: Part, said: str) -> None:
    """One is closed, of the other it cannot be said."""
    found = required(dict.fromkeys(order, 1.0), {"b": bad, "c": 0.0})
    assert found.status == "failed" and found.error is not None and found.error.startswith(said)


def test_an_unmet_requirement_makes_0_of_a_missing_part_only_where_that_may_be_left_out() -> None:
    parts: dict[str, Part | float] = {"a": FAILED, "b": 0.0}
    assert required({"b": 1}, parts, "fail").status == "failed"
    assert required({"b": 1}, parts, "leave_out").value == 0.0


# A function of one's own


def made_by(function: Any, parts: dict[str, Part | float] | None = None) -> Combined:
    return whole({"weights": ["a", "b"], "function": "m:f"}, parts or PARTS, function)


def test_a_function_gets_the_scaled_parts_and_gives_the_value() -> None:
    seen: list[Mapping[str, float]] = []

    def product(parts: Mapping[str, float]) -> float:
        seen.append(parts)
        return math.prod(parts.values())

    found = whole(
        {"weights": ["a", "b"], "function": "m:f"}, {"a": 2.0, "b": 0.5}, product, a={"range": [0, 8], **LOWER}
    )
    assert (found.status, found.value, found.parts) == ("scored", 0.375, {"a": 0.75, "b": 0.5})
    assert seen == [{"a": 0.75, "b": 0.5}]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.25, 0.25), (0, 0.0), (1, 1.0), (True, 1.0), (False, 0.0), (np.float32(0.5), 0.5), (np.int64(1), 1.0)],
)
def test_a_function_may_give_any_number_from_0_to_1(value: object, kept: float) -> None:
    found = made_by(lambda parts: value)
    assert (found.status, found.value) == ("scored", kept) and type(found.value) is float


def test_a_function_may_say_that_it_does_not_apply() -> None:
    assert made_by(lambda parts: None) == Combined(status="not_applicable", parts={"a": 0.25, "b": 0.5})


@pytest.mark.parametrize("value", [1.2, -0.1, math.nan, math.inf, "0.5", "good", [0.5], {}, 1j], ids=repr)
def test_what_is_no_number_from_0_to_1_makes_the_composite_fail(value: object) -> None:
    found = made_by(lambda parts: value)
    assert (found.status, found.value) == ("failed", None)
    assert found.error == f"the composite's function returned {value!r}, wanted 0 to 1, or None"


def test_a_function_that_raises_makes_the_composite_fail() -> None:
    found = made_by(lambda parts: parts["c"])
    assert (found.status, found.error) == ("failed", "the composite's function raised KeyError: 'c'")


def test_a_function_cannot_change_the_parts_that_are_kept() -> None:
    def greedy(parts: dict[str, float]) -> float:
        parts["a"] = 1.0
        return parts["a"]

    found = made_by(greedy)
    assert (found.value, found.parts) == (1.0, {"a": 0.25, "b": 0.5})


def test_a_function_is_not_called_where_a_requirement_is_unmet_or_nothing_applies() -> None:
    def never(parts: object) -> float:
        raise AssertionError

    said = {"weights": ["a"], "function": "m:f", "requirements": {"b": 1}}
    assert whole(said, {"a": 1.0, "b": 0.0}, never).value == 0.0
    assert whole(said, {"a": WITHOUT, "b": 1.0}, never).status == "not_applicable"


# Versions


def version(change: dict[str, Any] | None = None, **fields: Any) -> str:
    composite = CompositeSpec.model_validate({"name": "quality", "weights": {"a": 1, "b": 2}} | (change or {}))
    spec = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
    return composite_version(composite, ExperimentSpec.model_validate(spec | fields))


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"a": 1, "b": 3}},
        {"aggregation": "minimum"},
        {"aggregation": "geometric_mean"},
        {"missing": "worst"},
        {"requirements": {"c": 1}},
        {"requirements": {"c": 0.5}},
        {"function": "odd_evaluators:steep"},
    ],
    ids=str,
)
def test_a_composite_that_is_made_otherwise_is_of_another_version(change: dict[str, Any]) -> None:
    assert version(change) != version()
    assert version(change) == version(change)


def test_the_directions_and_ranges_of_parts_and_requirements_are_part_of_the_version() -> None:
    strict = {"requirements": {"c": 1}}
    assert version(strict) != version({"requirements": {"c": 0.5}})
    assert version(strict) != version(strict, metrics={"c": LOWER})
    assert version(strict) != version(strict, metrics={"a": {"range": [0, 5]}})
    assert version(strict) == version(strict, metrics={"other": LOWER}) == version(strict | {"name": "another"})


def test_the_source_of_a_function_of_ones_own_is_part_of_the_version(
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
