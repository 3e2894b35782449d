# ruff: noqa: A006 - `input` is Langfuse's name
"""How an evaluator is bound: its arguments, its kind, its scope and its settings."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.binding import OFFERED, Bound, bind
from evalflows.evaluators.views import (
    Evaluation,
    Evaluations,
    ExampleView,
    ItemResult,
    RunView,
    offer_experiment,
    offer_run,
)
from evalflows.specs.errors import InputError


def example_view(number: int = 0) -> ExampleView:
    return ExampleView(
        id=f"example-{number}",
        inputs={"question": f"question {number}"},
        reference_outputs={"answer": f"wanted {number}"},
        metadata={"topic": number},
        attachments={"image.png": "bytes"},
    )


def run_view(number: int = 0) -> RunView:
    return RunView(id=f"run-{number}", inputs={"question": f"question {number}"}, outputs={"answer": f"got {number}"})


EXAMPLE, RUN = example_view(), run_view()
SCORES = Evaluations([Evaluation(name="length", value=3.0), Evaluation(name="tone", value="polite")])
ITEM = offer_run(EXAMPLE, RUN, SCORES)
RESULTS = [
    ItemResult(item=example_view(n), output=run_view(n).outputs, evaluations=Evaluations(), run=run_view(n))
    for n in range(3)
]


def evaluate(function: Callable[..., Any], **settings: Any) -> Any:
    """Return the value of an item-level evaluator for ITEM."""
    return bind(function, settings=settings).call(ITEM)


def evaluate_run(function: Callable[..., Any], **settings: Any) -> Any:
    """Return the value of a run-level evaluator for RESULTS."""
    return bind(function, settings=settings, scope="run").call(offer_experiment(RESULTS))


def function_with(*names: str, kind: Any = Parameter.POSITIONAL_OR_KEYWORD) -> Callable[..., Any]:
    """Return a function with these parameters; it returns its arguments by name."""

    def judge(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(zip(names, args, strict=False)) | kwargs

    judge.__signature__ = Signature([Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return judge


def bind_error(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        bind(function, **options)
    return str(caught.value)


@given(
    names=st.lists(st.sampled_from([name for name in OFFERED["item"] if name in ITEM]), unique=True),
    kind=st.sampled_from([Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY]),
)
def test_any_subset_of_arguments_in_any_order_and_kind_is_passed(names: list[str], kind: Any) -> None:
    assert evaluate(function_with(*names, kind=kind)) == {name: ITEM[name] for name in names}


def test_the_reference_is_none_if_the_example_has_none() -> None:
    available = offer_run(ExampleView(id="e", inputs={"input": "x"}), RUN)

    def judge(reference_outputs: Any, expected_output: Any, example: Any) -> Any:
        return reference_outputs, expected_output, example.outputs

    assert bind(judge).call(available) == (None, None, None)


def test_a_parameter_with_a_default_gets_what_is_available_or_keeps_it() -> None:
    def judge(inputs: Any, threshold: float = 0.5, outputs: Any = None, /) -> Any:
        return inputs, threshold, outputs

    assert evaluate(judge) == ({"question": "question 0"}, 0.5, {"answer": "got 0"})

    def judge(outputs: Any, strictness: int = 3) -> Any:
        return outputs, strictness

    assert evaluate(judge) == ({"answer": "got 0"}, 3)

    def judge(outputs: Any, reference_outputs: Any = "default") -> Any:
        return reference_outputs

    assert evaluate(judge) == {"answer": "wanted 0"}


def test_kwargs_get_the_langfuse_arguments_not_requested_by_name() -> None:
    def judge(**kwargs: Any) -> dict[str, Any]:
        return kwargs

    assert evaluate(judge) == {
        "input": {"question": "question 0"},
        "output": {"answer": "got 0"},
        "expected_output": {"answer": "wanted 0"},
        "metadata": {"topic": 0},
    }

    def judge(*, output: Any, **rest: Any) -> Any:
        return output, set(rest)

    assert evaluate(judge) == ({"answer": "got 0"}, {"input", "expected_output", "metadata"})


def test_langfuse_arguments_are_unwrapped() -> None:
    example = ExampleView(id="e", inputs={"input": "Why?"}, reference_outputs={"output": "So."})
    available = offer_run(example, RunView(id="r", inputs=example.inputs, outputs={"output": 42}))
    langfuse = bind(lambda input, output, expected_output: (input, output, expected_output))
    assert langfuse.call(available) == ("Why?", 42, "So.")
    assert bind(lambda inputs, outputs: (inputs, outputs)).call(available) == ({"input": "Why?"}, {"output": 42})


# What can be bound


class Judge:
    """A callable object with state."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def __call__(self, outputs: dict[str, Any]) -> bool:
        return bool(outputs["answer"] == self.wanted)

    def method(self, outputs: dict[str, Any]) -> str:
        return f"{self.wanted} or {outputs['answer']}"


class AsyncJudge:
    async def __call__(self, outputs: dict[str, Any]) -> Any:
        return outputs["answer"]


async def judge_later(outputs: dict[str, Any], suffix: str = "") -> Any:
    await asyncio.sleep(0)
    return f"{outputs['answer']}{suffix}"


def answer_of(bound: Bound, available: Mapping[str, Any] = ITEM) -> Any:
    async def wait() -> Any:
        return await bound.call(available)

    assert bound.is_async
    return asyncio.run(wait())


def test_whatever_is_async_returns_an_awaitable() -> None:
    assert answer_of(bind(judge_later)) == "got 0"
    assert bind(lambda outputs: 1).is_async is False
    assert answer_of(bind(partial(judge_later, suffix="!"))) == "got 0!"
    assert answer_of(bind(AsyncJudge())) == "got 0"
    assert answer_of(bind(partial(AsyncJudge()))) == "got 0"


def test_a_partial_keeps_its_arguments() -> None:
    def judge(prefix: str, outputs: Any, *, suffix: str) -> str:
        return f"{prefix}{outputs['answer']}{suffix}"

    bound = bind(partial(judge, "<", suffix=">"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("judge", False, "<got 0>")

    def judge(outputs: Any, reference_outputs: Any) -> Any:
        return outputs, reference_outputs

    assert evaluate(partial(judge, reference_outputs="fixed")) == ({"answer": "got 0"}, "fixed")


def test_a_callable_object_is_called_and_named_by_its_class() -> None:
    bound = bind(Judge("got 0"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("Judge", False, True)
    assert bind(Judge("else")).call(ITEM) is False
    assert evaluate(Judge("this").method) == "this or got 0"
    assert bind(lambda outputs: 1).name == "function"
    assert bind(judge_later).name == "judge_later"
    assert bind(judge_later, name="politeness").name == "politeness"


def test_a_decorated_function_has_the_signature_of_the_inner_one() -> None:
    @wraps(judge_later)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        return await judge_later(*args, **kwargs)

    assert answer_of(bind(traced)) == "got 0"

    def judge(outputs: Any) -> Any:
        return outputs["answer"]

    @wraps(judge)
    async def in_a_thread(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(judge, *args, **kwargs)

    assert answer_of(bind(in_a_thread)) == "got 0"


def test_a_composite_gets_the_earlier_scores_and_an_empty_list_without_any() -> None:
    assert evaluate(lambda evaluations: evaluations) is evaluate(lambda scores: scores) is SCORES
    assert bind(lambda evaluations: list(evaluations)).call(offer_run(EXAMPLE, RUN)) == []

    def positional(scores: Any, /) -> None: ...

    assert bind(lambda outputs, evaluations: 1).asks_for("evaluations", "scores")
    assert bind(positional).asks_for("evaluations", "scores")
    assert not bind(lambda outputs: 1).asks_for("evaluations", "scores")


def test_a_run_level_evaluator_gets_lists_in_the_order_of_the_runs() -> None:
    def average(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return inputs, outputs, reference_outputs

    assert evaluate_run(average) == (
        [{"question": "question 0"}, {"question": "question 1"}, {"question": "question 2"}],
        [{"answer": "got 0"}, {"answer": "got 1"}, {"answer": "got 2"}],
        [{"answer": "wanted 0"}, {"answer": "wanted 1"}, {"answer": "wanted 2"}],
    )
    runs, examples = evaluate_run(lambda runs, examples: (runs, examples))
    assert [run.id for run in runs] == ["run-0", "run-1", "run-2"]
    assert [example.id for example in examples] == ["example-0", "example-1", "example-2"]

    def average(*, item_results: Any, **kwargs: Any) -> Any:
        return [(result.item.id, result.output) for result in item_results], kwargs

    rows = [(f"example-{n}", {"answer": f"got {n}"}) for n in range(3)]
    assert evaluate_run(average) == (rows, {})


def test_item_level_arguments_are_rejected_at_run_level() -> None:
    for name in ("example", "run", "metadata", "input", "evaluations"):
        assert evaluate(function_with(name)) == {name: ITEM[name]}
        assert repr(name) in bind_error(function_with(name), scope="run")


def test_an_unknown_parameter_is_reported_with_the_available_ones() -> None:
    def judge(outputs: Any, refrence_outputs: Any) -> None: ...

    message = bind_error(judge)
    assert message.startswith("evaluator 'judge': asks for 'refrence_outputs', wanted any of ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["item"])
    message = bind_error(lambda answers: 1, scope="run", name="average")
    assert message.startswith("evaluator 'average': asks for 'answers', ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["run"])
    assert "'item_results'" in bind_error(lambda item_results: 1)
    assert "evaluator 'max': its parameters cannot be read" in bind_error(max)


def test_settings_are_passed_by_name_and_fill_parameters_without_a_default() -> None:
    def judge(outputs: Any, threshold: float, *, unit: str = "words") -> Any:
        return outputs, threshold, unit

    assert evaluate(judge, threshold=0.7, unit="letters") == ({"answer": "got 0"}, 0.7, "letters")

    def judge(outputs: Any, threshold: float) -> None: ...

    assert "'threshold'" in bind_error(judge)
    assert bind(judge, settings={"threshold": 1}).settings == {"threshold": 1}
    assert evaluate(lambda outputs, strict=True, label="": (strict, label), strict="no", label="no") == (False, "no")
    assert evaluate_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=3) is True
    assert evaluate_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=4) is False


def test_a_setting_overrides_an_argument_of_the_same_name() -> None:
    def judge(outputs: Any, metadata: Any) -> Any:
        return outputs, metadata

    assert evaluate(judge, metadata="mine") == ({"answer": "got 0"}, "mine")
    assert evaluate(lambda **kwargs: kwargs["metadata"], metadata="mine") == "mine"
    assert evaluate(lambda outputs, **kwargs: kwargs["strict"], strict=True) is True


def test_a_positional_only_parameter_takes_no_setting() -> None:
    def judge(threshold: float, /, outputs: Any) -> None: ...

    assert "'threshold'" in bind_error(judge, settings={"threshold": 1})

    def judge(threshold: float, /, **_: Any) -> None: ...

    assert "'threshold'" in bind_error(judge, settings={"threshold": 1})
