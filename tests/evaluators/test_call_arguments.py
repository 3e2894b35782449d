# ruff: noqa: A002, A006 - `input` is Langfuse's name
"""Which arguments a bound item-level evaluator gets, for each kind of parameter and each project's names."""

from collections.abc import Callable
from inspect import Parameter
from typing import Any

import pytest
from bound_calls import EXAMPLE, ITEM, RUN, evaluate, function_with
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.call import OFFERED, bind, offer_run
from evalflows.evaluators.subject import ExampleView, RunView

# LangSmith's names


def test_all_langsmith_arguments_are_passed() -> None:
    def everything(
        run: Any, example: Any, inputs: Any, outputs: Any, reference_outputs: Any, metadata: Any, attachments: Any
    ) -> tuple[Any, ...]:
        return run, example, inputs, outputs, reference_outputs, metadata, attachments

    assert evaluate(everything) == (
        RUN,
        EXAMPLE,
        {"question": "question 0"},
        {"answer": "got 0"},
        {"answer": "wanted 0"},
        {"topic": 0},
        {"image.png": "bytes"},
    )


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda inputs: inputs, {"question": "question 0"}),
        (lambda outputs: outputs, {"answer": "got 0"}),
        (lambda reference_outputs: reference_outputs, {"answer": "wanted 0"}),
        (lambda metadata: metadata, {"topic": 0}),
        (lambda example: example, EXAMPLE),
        (lambda run: run, RUN),
        (lambda root_run: root_run, RUN),
        (lambda attachments: attachments, {"image.png": "bytes"}),
    ],
)
def test_each_argument_can_be_requested_alone(function: Callable[..., Any], wanted: object) -> None:
    assert evaluate(function) == wanted


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from([name for name in OFFERED["item"] if name in ITEM]), unique=True),
    kind=st.sampled_from([Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY]),
)
def test_any_subset_of_arguments_in_any_order_and_kind_is_passed(names: list[str], kind: Any) -> None:
    assert evaluate(function_with(*names, kind=kind)) == {name: ITEM[name] for name in names}


def test_arguments_are_matched_by_name_not_by_position() -> None:
    def swapped(reference_outputs: Any, outputs: Any) -> Any:
        return reference_outputs, outputs

    assert evaluate(swapped) == ({"answer": "wanted 0"}, {"answer": "got 0"})


@pytest.mark.parametrize(
    "function", [lambda run, example: (run, example), lambda root_run, example: (root_run, example)]
)
def test_langsmiths_first_form_takes_a_run_and_an_example(function: Callable[..., Any]) -> None:
    assert evaluate(function) == (RUN, EXAMPLE)


def test_the_reference_is_the_outputs_of_the_example() -> None:
    assert evaluate(lambda run, example: (run.outputs, example.outputs)) == (
        {"answer": "got 0"},
        {"answer": "wanted 0"},
    )


def test_the_reference_is_none_if_the_example_has_none() -> None:
    available = offer_run(ExampleView(id="e", inputs={"input": "x"}), RUN)

    def judge(reference_outputs: Any, expected_output: Any, example: Any) -> Any:
        return reference_outputs, expected_output, example.outputs

    assert bind(judge).call(available) == (None, None, None)


def test_a_function_can_request_no_argument() -> None:
    assert evaluate(lambda: 0.5) == 0.5


# kinds of parameters


def test_positional_only_parameters_are_filled_in_order() -> None:
    def judge(outputs: Any, inputs: Any, /) -> Any:
        return outputs, inputs

    assert evaluate(judge) == ({"answer": "got 0"}, {"question": "question 0"})


def test_a_positional_only_default_keeps_its_place() -> None:
    def judge(inputs: Any, threshold: float = 0.5, outputs: Any = None, /) -> Any:
        return inputs, threshold, outputs

    assert evaluate(judge) == ({"question": "question 0"}, 0.5, {"answer": "got 0"})


def test_keyword_only_parameters_are_filled() -> None:
    def judge(*, outputs: Any, reference_outputs: Any) -> Any:
        return outputs, reference_outputs

    assert evaluate(judge) == ({"answer": "got 0"}, {"answer": "wanted 0"})


def test_a_signature_can_mix_all_kinds_of_parameters() -> None:
    def judge(inputs: Any, /, outputs: Any, *rest: Any, metadata: Any) -> Any:
        return inputs, outputs, rest, metadata

    assert evaluate(judge) == ({"question": "question 0"}, {"answer": "got 0"}, (), {"topic": 0})


def test_an_unknown_parameter_keeps_its_default() -> None:
    def judge(outputs: Any, strictness: int = 3) -> Any:
        return outputs, strictness

    assert evaluate(judge) == ({"answer": "got 0"}, 3)


def test_an_available_argument_overrides_a_default() -> None:
    def judge(outputs: Any, reference_outputs: Any = "default") -> Any:
        return reference_outputs

    assert evaluate(judge) == {"answer": "wanted 0"}


# Langfuse's spelling


def test_all_langfuse_arguments_are_passed() -> None:
    def judge(*, input: Any, output: Any, expected_output: Any = None, metadata: Any = None, **_: Any) -> Any:
        return input, output, expected_output, metadata

    wanted = ({"question": "question 0"}, {"answer": "got 0"}, {"answer": "wanted 0"}, {"topic": 0})
    assert evaluate(judge) == wanted


def test_a_function_of_kwargs_gets_the_four_langfuse_arguments() -> None:
    def judge(**kwargs: Any) -> dict[str, Any]:
        return kwargs

    assert evaluate(judge) == {
        "input": {"question": "question 0"},
        "output": {"answer": "got 0"},
        "expected_output": {"answer": "wanted 0"},
        "metadata": {"topic": 0},
    }


def test_kwargs_get_the_langfuse_arguments_not_requested_by_name() -> None:
    def judge(*, output: Any, **rest: Any) -> Any:
        return output, set(rest)

    assert evaluate(judge) == ({"answer": "got 0"}, {"input", "expected_output", "metadata"})


def test_langfuse_arguments_are_unwrapped() -> None:
    example = ExampleView(id="e", inputs={"input": "Why?"}, reference_outputs={"output": "So."})
    available = offer_run(example, RunView(id="r", inputs=example.inputs, outputs={"output": 42}))
    langfuse = bind(lambda input, output, expected_output: (input, output, expected_output))
    assert langfuse.call(available) == ("Why?", 42, "So.")
    assert bind(lambda inputs, outputs: (inputs, outputs)).call(available) == ({"input": "Why?"}, {"output": 42})


def test_langsmith_and_langfuse_arguments_can_be_mixed() -> None:
    def judge(inputs: Any, output: Any, *, expected_output: Any, example: Any) -> Any:
        return inputs, output, expected_output, example

    assert evaluate(judge) == ({"question": "question 0"}, {"answer": "got 0"}, {"answer": "wanted 0"}, EXAMPLE)
