"""Directions, ranges and weights."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import CompositeSpec, MetricSpec
from evalflows.specs.metric_names import MEASURES

SPEC: dict[str, Any] = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
INF, NAN = float("inf"), float("nan")


def refusal(model: type[MetricSpec | CompositeSpec], content: object) -> str:
    """The one line that something is refused with."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(content)
    text = first_problem(caught.value, "it")
    assert "\n" not in text
    return text


def composite(**settings: Any) -> CompositeSpec:
    return CompositeSpec.model_validate({"name": "quality", "weights": {"fair": 1}} | settings)


# Metrics


def test_higher_is_better_unless_it_is_said() -> None:
    assert MetricSpec().higher_is_better is None  # said by the spec: it knows which metrics are measures
    assert direction("mine").higher_is_better is True
    assert direction("mine", mine={"higher_is_better": False}).higher_is_better is False


@pytest.mark.parametrize("bounds", [(0, 1), (-5, -1), (-1.5, 0), (0, 1e9), [1, 5]])
def test_a_range_is_a_lower_and_an_upper_bound(bounds: Any) -> None:
    assert MetricSpec.model_validate({"range": bounds}).range == tuple(bounds)


@pytest.mark.parametrize("bounds", [(1, 0), (1, 1), (0, 0), (NAN, 1), (0, NAN), (0, -0.0)])
def test_bounds_that_are_not_in_order_are_refused(bounds: tuple[float, float]) -> None:
    assert refusal(MetricSpec, {"range": bounds}).startswith("it: range: got [")


@pytest.mark.parametrize("bounds", [(0, INF), (-INF, 0), (-INF, INF)])
def test_a_bound_without_end_is_refused(bounds: tuple[float, float]) -> None:
    assert "range" in refusal(MetricSpec, {"range": bounds})


@pytest.mark.parametrize("bounds", [[0], [0, 1, 2], 1, "0-1", ["low", "high"], {"low": 0}, [0, None]], ids=repr)
def test_what_is_no_range_is_refused(bounds: object) -> None:
    assert refusal(MetricSpec, {"range": bounds}).startswith("it: range")


def test_an_unknown_field_of_a_metric_is_refused() -> None:
    assert refusal(MetricSpec, {"lower_is_better": True}) == "it: lower_is_better: no such field"


def test_a_metric_comes_back_from_json_as_it_was() -> None:
    metric = MetricSpec(higher_is_better=False, range=(-1.5, 1e-300))
    assert MetricSpec.model_validate_json(metric.model_dump_json()) == metric


# Repeated trials


def test_a_metric_has_no_pass_k_unless_it_is_said_and_passes_from_1() -> None:
    assert (MetricSpec().pass_k, MetricSpec().pass_threshold) == ([], 1.0)


@pytest.mark.parametrize("k", [0, -1, 1.5, "two", None])
def test_a_k_below_1_or_between_two_numbers_is_refused(k: object) -> None:
    assert refusal(MetricSpec, {"pass_k": [1, k]}).startswith("it: pass_k.1: ")


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


@pytest.mark.parametrize(
    "said", [MetricSpec(), MetricSpec(higher_is_better=True), MetricSpec(range=(1, 2)), MetricSpec(pass_k=[2])], ids=str
)
def test_what_is_said_is_the_same_after_a_way_through_json(said: MetricSpec) -> None:
    """There every field is written down, also those of which nothing was said."""
    again = MetricSpec.model_validate_json(said.model_dump_json())
    assert again.or_else(LESS) == said.or_else(LESS)


# Directions


def direction(metric: str, **metrics: Any) -> MetricSpec:
    return ExperimentSpec.model_validate(SPEC | {"metrics": metrics}).direction(metric)


@pytest.mark.parametrize("measure", MEASURES)
def test_less_of_a_measure_is_better(measure: str) -> None:
    assert direction(measure) == MetricSpec(higher_is_better=False)


def test_more_of_any_other_metric_is_better() -> None:
    assert direction("fair") == MetricSpec(higher_is_better=True)


def test_what_is_declared_of_a_metric_counts() -> None:
    assert direction("errors", errors={"higher_is_better": False}) == MetricSpec(higher_is_better=False)
    assert direction("length", length={"higher_is_better": True}) == MetricSpec(higher_is_better=True)
    assert direction("fair", errors={"higher_is_better": False}) == MetricSpec(higher_is_better=True)


@pytest.mark.parametrize("measure", MEASURES)
def test_less_of_a_measure_is_better_where_only_its_range_is_declared(measure: str) -> None:
    assert direction(measure, **{measure: {"range": [0, 10]}}).higher_is_better is False


def test_the_direction_of_a_measure_is_the_same_after_a_way_through_the_store() -> None:
    spec = ExperimentSpec.model_validate(SPEC | {"metrics": {"latency": {"range": [0, 10]}}})
    again = ExperimentSpec.model_validate_json(spec.model_dump_json())
    assert spec.direction("latency").higher_is_better is again.direction("latency").higher_is_better is False


# Composites


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 0.1, "b": 1e-9}, {"a": 3, "b": 100}])
def test_weights_are_more_than_nothing_and_need_not_add_up(weights: dict[str, float]) -> None:
    assert composite(weights=weights).weights == weights


@pytest.mark.parametrize("weight", [0, -1, -0.5, NAN, INF, -INF])
def test_a_weight_that_does_not_weigh_is_refused(weight: float) -> None:
    said = refusal(CompositeSpec, {"name": "quality", "weights": {"a": 1, "b": weight}})
    assert said == f"it: weights: b: got {float(weight)}, wanted more than 0"


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"weights": {}}, "it: weights: Dictionary should have at least 1 item"),
        ({"weights": "a"}, "it: weights: Input should be a valid dictionary"),
        ({"weights": []}, "it: weights: Dictionary should have at least 1 item"),
        ({"weights": [1]}, "it: weights.1.[key]: Input should be a valid string"),
        (
            {"aggregation": "maximum"},
            "it: aggregation: Input should be 'weighted_mean', 'geometric_mean' or 'minimum', got 'maximum'",
        ),
        ({"aggregation": "minimum", "function": "m:f"}, "it: aggregation: got minimum with a function"),
        ({"requirements": {"a": "high"}}, "it: requirements.a: Input should be a valid number"),
        ({"weights": {"a": "much"}}, "it: weights.a: Input should be a valid number"),
        ({"name": ""}, "it: name: String should have at least 1 character"),
        ({"missing": "skip"}, "it: missing: Input should be 'fail', 'leave_out' or 'worst', got 'skip'"),
        ({"weight": {"a": 1}}, "it: weight: no such field"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_composite_is_said_with_its_place(change: dict[str, Any], beginning: str) -> None:
    assert refusal(CompositeSpec, {"name": "quality", "weights": {"a": 1}} | change).startswith(beginning)


def test_a_list_of_metrics_weighs_them_alike() -> None:
    assert composite(weights=["a", "b"]).weights == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("bound", [NAN, INF, -INF])
def test_a_gate_that_nothing_or_everything_passes_is_refused(bound: float) -> None:
    said = refusal(CompositeSpec, {"name": "quality", "weights": ["a"], "requirements": {"b": 1, "a": bound}})
    assert said == f"it: requirements: a: got {bound}, wanted a number"


def test_a_composite_rests_on_its_parts_and_on_its_gates() -> None:
    assert composite(weights=["a", "b"], requirements={"b": 1, "c": 0}).metrics == {"a", "b", "c"}


def test_a_composite_comes_back_from_json_as_it_was() -> None:
    one = composite(weights=["a", "b"], aggregation="geometric_mean", requirements={"c": -0.5}, missing="worst")
    assert CompositeSpec.model_validate_json(one.model_dump_json()) == one


def test_a_missing_part_makes_the_composite_fail_unless_it_is_said() -> None:
    assert composite().missing == "fail"


@pytest.mark.parametrize("name", MEASURES)
def test_a_composite_is_not_called_like_a_measure(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' is a built-in measure of every run"):
        ExperimentSpec.model_validate(SPEC | {"composites": [{"name": name, "weights": {"fair": 1}}]})


def test_a_composite_has_a_name_of_its_own() -> None:
    twice = {"evaluators": ["contains"], "composites": [{"name": "contains", "weights": {"contains": 1}}]}
    with pytest.raises(ValidationError, match="two are called 'contains'"):
        ExperimentSpec.model_validate(SPEC | twice)
