"""What evaluators declare of their metrics, what a spec says against it, and what is no declaration."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import pytest

from evalflows.engine.prepare import prepare
from evalflows.engine.spec_evaluators import prepare_evaluator
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.reference import refer

LESS = {"higher_is_better": False, "range": [0, 5]}


def judge(metrics: object, name: str = "harm") -> Callable[..., Any]:
    """An evaluator of that name, whose attribute `metrics` is this."""

    def evaluator(outputs: object, *, scale: int = 5, **_: object) -> bool:
        return True

    evaluator.__name__ = name
    evaluator.metrics = metrics  # type: ignore[attr-defined]
    return evaluator


def evaluators(*functions: Callable[..., Any], **said: Any) -> dict[str, Any]:
    return {"evaluators": [{"use": refer(function)} | said for function in functions]}


def spec(**fields: Any) -> ExperimentSpec:
    given: dict[str, Any] = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
    return ExperimentSpec.model_validate(given | fields)


def metrics(**fields: Any) -> dict[str, MetricSpec]:
    """The metrics of a spec, with what its evaluators declare."""
    return prepare(spec(**fields)).spec.metrics


def refusal(function: Callable[..., Any], **said: Any) -> str:
    with pytest.raises(InputError) as caught:
        metrics(**evaluators(function, name="harm", **said))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def named(function: Callable[..., Any], name: str = "harm", **args: Any) -> dict[str, MetricSpec]:
    (found,) = prepare_evaluator(EvaluatorSpec(use=refer(function), name=name, args=args)).declared_metrics
    return dict(found)


def test_a_mapping_of_metrics_is_kept_in_the_spec() -> None:
    found = metrics(**evaluators(judge({"harm": LESS, "other": {"range": (1, 2)}, "plain": {}}), name="harm"))
    assert found == {
        "harm": MetricSpec(higher_is_better=False, range=(0, 5)),
        "other": MetricSpec(range=(1, 2)),
        "plain": MetricSpec(),
    }


def test_a_function_is_asked_with_the_name_of_the_score_and_the_settings() -> None:
    def of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: {"range": [0, settings.get("scale", 5)]}, f"{name} mean": LESS}

    assert named(judge(of), "tone") == {"tone": MetricSpec(range=(0, 5)), "tone mean": MetricSpec(**LESS)}
    assert named(judge(of), "tone", scale=9)["tone"] == MetricSpec(range=(0, 9))


def test_in_a_mapping_the_functions_own_name_stands_for_the_name_that_a_spec_gives() -> None:
    """Else a metric of which less is better would be taken for one of which more is, once it is called otherwise."""
    assert named(judge({"harm": LESS}), "toxicity")["toxicity"] == MetricSpec(**LESS)
    both = {"harm": LESS, "toxicity": {"range": [0, 1]}}
    assert named(judge(both), "toxicity") == {"harm": MetricSpec(**LESS), "toxicity": MetricSpec(range=(0, 1))}
    assert "toxicity" not in named(judge({"another": LESS}), "toxicity")
    found = metrics(evaluators=[{"use": "toxicity", "name": "t"}, {"use": "toxicity", "connection": "local"}])
    assert {name: one.is_higher_better(name) for name, one in found.items()} == {"t": False, "toxicity": False}
    assert {one.range for one in found.values()} == {(0.0, 1.0)}


def test_what_wraps_an_evaluator_or_holds_some_of_its_settings_declares_what_it_does() -> None:
    def of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: {"range": [0, settings["scale"]]}}

    inner = judge(of)

    @wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert named(partial(inner, scale=7))["harm"].range == (0, 7)
    assert named(outer, scale=3)["harm"].range == (0, 3)


def test_of_a_cascade_the_tiers_declare_under_its_name() -> None:
    def of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: LESS}

    cascade = {"name": "harmful", "use": "cascade", "tiers": ["contains", {"use": refer(judge(of))}]}
    assert metrics(evaluators=[cascade]) == {"harmful": MetricSpec(**LESS)}
    assert prepare(spec(evaluators=[cascade])).given_metrics is None, "one tier is not ours"


def test_what_the_spec_says_comes_first_field_by_field() -> None:
    fields = evaluators(judge({"harm": LESS}), name="harm")
    for said, wanted in (
        ({"higher_is_better": True}, MetricSpec(higher_is_better=True, range=(0, 5))),
        ({"range": [0, 1]}, MetricSpec(higher_is_better=False, range=(0, 1))),
        (
            {"pass_k": [1], "pass_threshold": 0.5},
            MetricSpec(higher_is_better=False, range=(0, 5), pass_k=[1], pass_threshold=0.5),
        ),
    ):
        given = spec(**fields, metrics={"harm": said, "other": {}})
        prepared = prepare(given).spec
        assert prepared.metrics == {"harm": wanted, "other": MetricSpec()}
        # As a worker, a resumption and the form in Prefect's UI get it: with every field written down.
        again = ExperimentSpec.model_validate_json(given.model_dump_json())
        assert prepare(again).spec == prepared
        twice = ExperimentSpec.model_validate_json(prepared.model_dump_json())
        assert prepare(twice).spec.metrics == prepared.metrics


def test_a_declaration_that_is_none_is_an_error_in_one_line() -> None:
    def of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if settings.get("scale", 5) < 1:
            raise ValueError(f"scale: got {settings['scale']}, wanted at least 1")
        return {}

    for said, problem in (
        ({"harm": {"lower_is_better": True}}, "lower_is_better: no such field"),
        ({"harm": {"range": [5, 0]}}, "range: got [5.0, 0.0], wanted two numbers, the lower one first"),
        ({"harm": True}, "got True, wanted a mapping"),
        ({"harm": {"pass_k": [4]}}, "got pass_k, wanted higher_is_better and range; other fields belong in the spec"),
        ({"harm": MetricSpec(pass_k=[4])}, "got pass_k, wanted"),
    ):
        assert refusal(judge(said)).startswith(f"evaluator 'harm': its attribute `metrics`: {problem}")
    assert refusal(judge(of), args={"scale": 0}) == "evaluator 'harm': scale: got 0, wanted at least 1"


class Judge:
    """Of somebody else: what it calls `metrics` is another thing."""

    def __init__(self, said: object = None) -> None:
        if said is not None:
            self.metrics = said

    def __call__(self, outputs: object) -> bool:
        return True


class WithMethod(Judge):
    def metrics(self, which: str) -> list[str]:  # type: ignore[override]
        raise AssertionError


def test_what_is_no_mapping_declares_nothing_and_an_object_may_call_another_thing_metrics() -> None:
    for said in (["accuracy"], 3, len, lambda name, settings: None):
        assert named(judge(said)) == {}
    for one in (Judge(["accuracy"]), Judge({"accuracy": 0.5}), Judge({"seen": {"count": 3}}), WithMethod()):
        assert named(one) == {}


def test_of_ours_it_is_known_which_metrics_they_give() -> None:
    found = prepare(spec(evaluators=["exact_match", {"use": "toxicity", "name": "t"}])).given_metrics
    assert found == ["exact_match", "t"]
