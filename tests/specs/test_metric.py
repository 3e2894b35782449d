"""Directions, ranges and weights."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.errors import MEASURES, first_problem
from evalflows.specs.evaluator import CompositeSpec, MetricSpec
from evalflows.specs.experiment import ExperimentSpec

SPEC: dict[str, Any] = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
INF, NAN = float("inf"), float("nan")


def refusal(model: type[MetricSpec | CompositeSpec], content: object) -> str:
    """The one line that something is refused with."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(content)
    text = first_problem(caught.value, "it")
    assert "\n" not in text
    return text


# Metrics


@pytest.mark.parametrize("bounds", [(1, 0), (1, 1), (0, 0), (NAN, 1), (0, NAN), (0, -0.0)])
def test_bounds_that_are_not_in_order_are_refused(bounds: tuple[float, float]) -> None:
    assert refusal(MetricSpec, {"range": bounds}).startswith("it: range: got [")


# Repeated trials


def test_a_k_above_the_repetitions_is_refused() -> None:
    def spec(repetitions: int) -> ExperimentSpec:
        return ExperimentSpec.model_validate(SPEC | {"repetitions": repetitions, "metrics": {"a": {"pass_k": [2, 4]}}})

    assert spec(4).repetitions == 4
    with pytest.raises(ValidationError, match="metrics: a: pass_k: got 4, with repetitions 3"):
        spec(3)


# What is declared elsewhere


LESS = MetricSpec(higher_is_better=False, range=(0, 5))


def test_what_is_said_comes_before_what_is_declared_field_by_field() -> None:
    assert MetricSpec().or_else(LESS) == LESS
    assert MetricSpec(higher_is_better=True).or_else(LESS) == MetricSpec(higher_is_better=True, range=(0, 5))
    assert MetricSpec(range=(1, 2)).or_else(LESS) == MetricSpec(higher_is_better=False, range=(1, 2))
    assert MetricSpec(pass_k=[2], pass_threshold=0.5).or_else(LESS) == MetricSpec(
        higher_is_better=False, range=(0, 5), pass_k=[2], pass_threshold=0.5
    )


# Directions


def direction(metric: str, **metrics: Any) -> MetricSpec:
    return ExperimentSpec.model_validate(SPEC | {"metrics": metrics}).direction(metric)


@pytest.mark.parametrize("measure", MEASURES)
def test_less_of_a_measure_is_better(measure: str) -> None:
    assert direction(measure) == MetricSpec(higher_is_better=False)


# Composites


@pytest.mark.parametrize("weight", [0, -1, -0.5, NAN, INF, -INF])
def test_a_weight_that_does_not_weigh_is_refused(weight: float) -> None:
    said = refusal(CompositeSpec, {"name": "quality", "weights": {"a": 1, "b": weight}})
    assert said == f"it: weights: b: got {float(weight)}, wanted more than 0"


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"weights": {}}, "it: weights: Dictionary should have at least 1 item"),
        ({"weights": [1]}, "it: weights.1.[key]: Input should be a valid string"),
        ({"aggregation": "minimum", "function": "m:f"}, "it: aggregation: got minimum with a function"),
        ({"missing": "skip"}, "it: missing: Input should be 'fail', 'leave_out' or 'worst', got 'skip'"),
        ({"weight": {"a": 1}}, "it: weight: no such field"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_composite_is_said_with_its_place(change: dict[str, Any], beginning: str) -> None:
    assert refusal(CompositeSpec, {"name": "quality", "weights": {"a": 1}} | change).startswith(beginning)


@pytest.mark.parametrize("bound", [NAN, INF, -INF])
def test_a_gate_that_nothing_or_everything_passes_is_refused(bound: float) -> None:
    said = refusal(CompositeSpec, {"name": "quality", "weights": ["a"], "requirements": {"b": 1, "a": bound}})
    assert said == f"it: requirements: a: got {bound}, wanted a number"


@pytest.mark.parametrize("name", MEASURES)
def test_a_composite_is_not_called_like_a_measure(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' is a built-in measure of every run"):
        ExperimentSpec.model_validate(SPEC | {"composites": [{"name": name, "weights": {"fair": 1}}]})
