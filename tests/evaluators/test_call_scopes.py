"""Composites and run-level evaluators, settings, and what `bind` rejects."""

from collections.abc import Callable
from typing import Any

import pytest
from bound_calls import EXAMPLE, ITEM, RUN, SCORES, bind_error, evaluate, evaluate_run, function_with

from evalflows.evaluators.call import OFFERED, bind, offer_run

# composites


@pytest.mark.parametrize("function", [lambda evaluations: evaluations, lambda scores: scores])
def test_a_composite_gets_the_earlier_scores(function: Callable[..., Any]) -> None:
    assert evaluate(function) is SCORES


def test_a_composite_looks_up_scores_by_name_and_index() -> None:
    def composite(outputs: Any, scores: Any) -> Any:
        return scores["length"].score, scores.get("tone").value, scores[0].key, scores.get("absent"), len(scores)

    assert evaluate(composite) == (3.0, "polite", "length", None, 2)


def test_without_scores_a_composite_gets_an_empty_list() -> None:
    assert bind(lambda evaluations: list(evaluations)).call(offer_run(EXAMPLE, RUN)) == []


def test_asks_for_distinguishes_composites_from_other_evaluators() -> None:
    def positional(scores: Any, /) -> None: ...

    assert bind(lambda outputs, evaluations: 1).asks_for("evaluations", "scores")
    assert bind(positional).asks_for("evaluations", "scores")
    assert not bind(lambda outputs: 1).asks_for("evaluations", "scores")


# run level


def test_a_run_level_evaluator_gets_lists_in_the_order_of_the_runs() -> None:
    def average(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return inputs, outputs, reference_outputs

    assert evaluate_run(average) == (
        [{"question": "question 0"}, {"question": "question 1"}, {"question": "question 2"}],
        [{"answer": "got 0"}, {"answer": "got 1"}, {"answer": "got 2"}],
        [{"answer": "wanted 0"}, {"answer": "wanted 1"}, {"answer": "wanted 2"}],
    )


def test_a_run_level_evaluator_gets_runs_and_examples() -> None:
    runs, examples = evaluate_run(lambda runs, examples: (runs, examples))
    assert [run.id for run in runs] == ["run-0", "run-1", "run-2"]
    assert [example.id for example in examples] == ["example-0", "example-1", "example-2"]


def test_a_run_level_evaluator_can_request_item_results() -> None:
    def average(*, item_results: Any, **kwargs: Any) -> Any:
        return [(result.item.id, result.output) for result in item_results], kwargs

    rows = [(f"example-{n}", {"answer": f"got {n}"}) for n in range(3)]
    assert evaluate_run(average) == (rows, {})


@pytest.mark.parametrize("name", ["example", "run", "metadata", "input", "evaluations"])
def test_item_level_arguments_are_rejected_at_run_level(name: str) -> None:
    assert evaluate(function_with(name)) == {name: ITEM[name]}
    assert repr(name) in bind_error(function_with(name), scope="run")


def test_run_level_arguments_are_rejected_at_item_level() -> None:
    assert "'item_results'" in bind_error(lambda item_results: 1)


# rejected functions


def test_an_unknown_parameter_is_reported_with_the_available_ones() -> None:
    def judge(outputs: Any, refrence_outputs: Any) -> None: ...

    message = bind_error(judge)
    assert message.startswith("evaluator 'judge': asks for 'refrence_outputs', wanted any of ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["item"])


def test_at_run_level_the_error_lists_the_run_level_arguments() -> None:
    message = bind_error(lambda answers: 1, scope="run", name="average")
    assert message.startswith("evaluator 'average': asks for 'answers', ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["run"])


@pytest.mark.parametrize("builtin", [max, int])
def test_a_builtin_without_a_signature_is_rejected(builtin: Callable[..., Any]) -> None:
    assert f"evaluator {builtin.__name__!r}: its parameters cannot be read" in bind_error(builtin)


def test_an_object_that_is_not_callable_is_rejected() -> None:
    not_callable: Any = "exact_match"
    assert "its parameters cannot be read" in bind_error(not_callable)


# settings


def test_settings_are_passed_by_name() -> None:
    def judge(outputs: Any, threshold: float, *, unit: str = "words") -> Any:
        return outputs, threshold, unit

    assert evaluate(judge, threshold=0.7, unit="letters") == ({"answer": "got 0"}, 0.7, "letters")


def test_a_setting_fills_a_parameter_without_a_default() -> None:
    def judge(outputs: Any, threshold: float) -> None: ...

    assert "'threshold'" in bind_error(judge)
    assert bind(judge, settings={"threshold": 1}).settings == {"threshold": 1}


def test_an_unknown_setting_is_rejected() -> None:
    def judge(outputs: Any, threshold: float = 0, unit: str = "") -> None: ...

    message = bind_error(judge, settings={"treshold": 1})
    assert message == "evaluator 'judge': got the setting 'treshold', wanted one of: threshold, unit"


def test_the_error_says_if_a_function_has_no_settings() -> None:
    assert bind_error(lambda outputs: 1, settings={"x": 1}).endswith("got the setting 'x', wanted one of: none")


def test_a_setting_overrides_an_argument_of_the_same_name() -> None:
    def judge(outputs: Any, metadata: Any) -> Any:
        return outputs, metadata

    assert evaluate(judge, metadata="mine") == ({"answer": "got 0"}, "mine")


def test_a_setting_overrides_an_argument_in_kwargs() -> None:
    assert evaluate(lambda **kwargs: kwargs["metadata"], metadata="mine") == "mine"


def test_kwargs_accept_any_setting() -> None:
    assert evaluate(lambda outputs, **kwargs: kwargs["strict"], strict=True) is True


def test_settings_reach_a_run_level_evaluator() -> None:
    assert evaluate_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=3) is True
    assert evaluate_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=4) is False


def test_a_setting_for_a_positional_only_parameter_is_rejected_before_the_call() -> None:
    def judge(threshold: float, /, outputs: Any) -> None: ...

    assert "'threshold'" in bind_error(judge, settings={"threshold": 1})


def test_kwargs_do_not_accept_a_setting_for_a_positional_only_parameter() -> None:
    def judge(threshold: float, /, **_: Any) -> None: ...

    assert "'threshold'" in bind_error(judge, settings={"threshold": 1})
