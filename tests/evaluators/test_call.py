# ruff: noqa: A002, A006 - `input` is Langfuse's name
"""The binder: what an evaluator asks for is what it is handed, and what nothing fills is said before the first call."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.call import OFFERED, Bound, bind, offer_experiment, offer_run
from evalflows.evaluators.subject import Evaluation, Evaluations, ExampleView, ItemResult, RunView
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


def ask(function: Callable[..., Any], **settings: Any) -> Any:
    """What an item-level evaluator returns for ITEM."""
    return bind(function, settings=settings).call(ITEM)


def ask_run(function: Callable[..., Any], **settings: Any) -> Any:
    """What a run-level evaluator returns for RESULTS."""
    return bind(function, settings=settings, scope="run").call(offer_experiment(RESULTS))


def taking(*names: str, kind: Any = Parameter.POSITIONAL_OR_KEYWORD) -> Callable[..., Any]:
    """A function with these parameters; it returns what it was handed."""

    def judge(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(zip(names, args, strict=False)) | kwargs

    judge.__signature__ = Signature([Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return judge


def refusal(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        bind(function, **options)
    return str(caught.value)


# LangSmith's names


def test_all_of_langsmiths_names_are_handed_over() -> None:
    def everything(
        run: Any, example: Any, inputs: Any, outputs: Any, reference_outputs: Any, metadata: Any, attachments: Any
    ) -> tuple[Any, ...]:
        return run, example, inputs, outputs, reference_outputs, metadata, attachments

    assert ask(everything) == (
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
def test_each_name_may_be_asked_for_alone(function: Callable[..., Any], wanted: object) -> None:
    assert ask(function) == wanted


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from([name for name in OFFERED["item"] if name in ITEM]), unique=True),
    kind=st.sampled_from([Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY]),
)
def test_any_subset_in_any_order_and_of_any_kind_is_handed_over(names: list[str], kind: Any) -> None:
    assert ask(taking(*names, kind=kind)) == {name: ITEM[name] for name in names}


def test_names_decide_and_not_their_order() -> None:
    def swapped(reference_outputs: Any, outputs: Any) -> Any:
        return reference_outputs, outputs

    assert ask(swapped) == ({"answer": "wanted 0"}, {"answer": "got 0"})


@pytest.mark.parametrize(
    "function", [lambda run, example: (run, example), lambda root_run, example: (root_run, example)]
)
def test_langsmiths_first_form_takes_a_run_and_an_example(function: Callable[..., Any]) -> None:
    assert ask(function) == (RUN, EXAMPLE)


def test_the_example_shows_its_reference_as_outputs() -> None:
    assert ask(lambda run, example: (run.outputs, example.outputs)) == ({"answer": "got 0"}, {"answer": "wanted 0"})


def test_an_example_without_a_reference_offers_none_for_it() -> None:
    available = offer_run(ExampleView(id="e", inputs={"input": "x"}), RUN)

    def judge(reference_outputs: Any, expected_output: Any, example: Any) -> Any:
        return reference_outputs, expected_output, example.outputs

    assert bind(judge).call(available) == (None, None, None)


def test_a_function_may_ask_for_nothing() -> None:
    assert ask(lambda: 0.5) == 0.5


# kinds of parameters


def test_positional_only_parameters_are_filled_in_order() -> None:
    def judge(outputs: Any, inputs: Any, /) -> Any:
        return outputs, inputs

    assert ask(judge) == ({"answer": "got 0"}, {"question": "question 0"})


def test_a_positional_only_default_keeps_its_place() -> None:
    def judge(inputs: Any, threshold: float = 0.5, outputs: Any = None, /) -> Any:
        return inputs, threshold, outputs

    assert ask(judge) == ({"question": "question 0"}, 0.5, {"answer": "got 0"})


def test_keyword_only_parameters_are_filled() -> None:
    def judge(*, outputs: Any, reference_outputs: Any) -> Any:
        return outputs, reference_outputs

    assert ask(judge) == ({"answer": "got 0"}, {"answer": "wanted 0"})


def test_all_kinds_may_stand_in_one_signature() -> None:
    def judge(inputs: Any, /, outputs: Any, *rest: Any, metadata: Any) -> Any:
        return inputs, outputs, rest, metadata

    assert ask(judge) == ({"question": "question 0"}, {"answer": "got 0"}, (), {"topic": 0})


def test_a_default_of_an_unknown_name_stays() -> None:
    def judge(outputs: Any, strictness: int = 3) -> Any:
        return outputs, strictness

    assert ask(judge) == ({"answer": "got 0"}, 3)


def test_what_is_offered_goes_before_a_default() -> None:
    def judge(outputs: Any, reference_outputs: Any = "default") -> Any:
        return reference_outputs

    assert ask(judge) == {"answer": "wanted 0"}


# Langfuse's spelling


def test_langfuses_spelling_is_handed_over() -> None:
    def judge(*, input: Any, output: Any, expected_output: Any = None, metadata: Any = None, **_: Any) -> Any:
        return input, output, expected_output, metadata

    wanted = ({"question": "question 0"}, {"answer": "got 0"}, {"answer": "wanted 0"}, {"topic": 0})
    assert ask(judge) == wanted


def test_only_kwargs_receive_langfuses_four() -> None:
    def judge(**kwargs: Any) -> dict[str, Any]:
        return kwargs

    assert ask(judge) == {
        "input": {"question": "question 0"},
        "output": {"answer": "got 0"},
        "expected_output": {"answer": "wanted 0"},
        "metadata": {"topic": 0},
    }


def test_kwargs_receive_what_is_not_asked_for_by_name() -> None:
    def judge(*, output: Any, **rest: Any) -> Any:
        return output, set(rest)

    assert ask(judge) == ({"answer": "got 0"}, {"input", "expected_output", "metadata"})


def test_langfuses_values_are_those_from_before_they_were_wrapped() -> None:
    example = ExampleView(id="e", inputs={"input": "Why?"}, reference_outputs={"output": "So."})
    available = offer_run(example, RunView(id="r", inputs=example.inputs, outputs={"output": 42}))
    langfuse = bind(lambda input, output, expected_output: (input, output, expected_output))
    assert langfuse.call(available) == ("Why?", 42, "So.")
    assert bind(lambda inputs, outputs: (inputs, outputs)).call(available) == ({"input": "Why?"}, {"output": 42})


def test_spellings_may_be_mixed() -> None:
    def judge(inputs: Any, output: Any, *, expected_output: Any, example: Any) -> Any:
        return inputs, output, expected_output, example

    assert ask(judge) == ({"question": "question 0"}, {"answer": "got 0"}, {"answer": "wanted 0"}, EXAMPLE)


# composites


@pytest.mark.parametrize("function", [lambda evaluations: evaluations, lambda scores: scores])
def test_a_composite_sees_the_scores_given_before(function: Callable[..., Any]) -> None:
    assert ask(function) is SCORES


def test_a_composite_looks_up_by_name_and_by_index() -> None:
    def composite(outputs: Any, scores: Any) -> Any:
        return scores["length"].score, scores.get("tone").value, scores[0].key, scores.get("absent"), len(scores)

    assert ask(composite) == (3.0, "polite", "length", None, 2)


def test_without_scores_a_composite_gets_an_empty_list() -> None:
    assert bind(lambda evaluations: list(evaluations)).call(offer_run(EXAMPLE, RUN)) == []


def test_asks_for_tells_a_composite_from_others() -> None:
    def positional(scores: Any, /) -> None: ...

    assert bind(lambda outputs, evaluations: 1).asks_for("evaluations", "scores")
    assert bind(positional).asks_for("evaluations", "scores")
    assert not bind(lambda outputs: 1).asks_for("evaluations", "scores")


# run level


def test_run_level_gets_lists_in_the_order_of_the_runs() -> None:
    def average(inputs: Any, outputs: Any, reference_outputs: Any) -> Any:
        return inputs, outputs, reference_outputs

    assert ask_run(average) == (
        [{"question": "question 0"}, {"question": "question 1"}, {"question": "question 2"}],
        [{"answer": "got 0"}, {"answer": "got 1"}, {"answer": "got 2"}],
        [{"answer": "wanted 0"}, {"answer": "wanted 1"}, {"answer": "wanted 2"}],
    )


def test_run_level_gets_runs_and_examples() -> None:
    runs, examples = ask_run(lambda runs, examples: (runs, examples))
    assert [run.id for run in runs] == ["run-0", "run-1", "run-2"]
    assert [example.id for example in examples] == ["example-0", "example-1", "example-2"]


def test_run_level_takes_langfuses_item_results() -> None:
    def average(*, item_results: Any, **kwargs: Any) -> Any:
        return [(result.item.id, result.output) for result in item_results], kwargs

    rows = [(f"example-{n}", {"answer": f"got {n}"}) for n in range(3)]
    assert ask_run(average) == (rows, {})


@pytest.mark.parametrize("name", ["example", "run", "metadata", "input", "evaluations"])
def test_what_only_an_item_has_is_refused_at_run_level(name: str) -> None:
    assert ask(taking(name)) == {name: ITEM[name]}
    assert repr(name) in refusal(taking(name), scope="run")


def test_what_only_a_run_has_is_refused_at_item_level() -> None:
    assert "'item_results'" in refusal(lambda item_results: 1)


# kinds of callables


class Judge:
    """A callable object with a state of its own."""

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


def test_an_async_function_gives_something_to_await() -> None:
    assert answer_of(bind(judge_later)) == "got 0"


def test_a_plain_function_is_not_async() -> None:
    assert bind(lambda outputs: 1).is_async is False


def test_a_partial_is_called_with_what_it_holds() -> None:
    def judge(prefix: str, outputs: Any, *, suffix: str) -> str:
        return f"{prefix}{outputs['answer']}{suffix}"

    bound = bind(partial(judge, "<", suffix=">"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("judge", False, "<got 0>")


def test_what_a_partial_holds_under_an_offered_name_stays() -> None:
    def judge(outputs: Any, reference_outputs: Any) -> Any:
        return outputs, reference_outputs

    assert ask(partial(judge, reference_outputs="fixed")) == ({"answer": "got 0"}, "fixed")


def test_a_partial_of_an_async_function_is_async() -> None:
    assert answer_of(bind(partial(judge_later, suffix="!"))) == "got 0!"


def test_a_callable_object_is_called_and_named_by_its_class() -> None:
    bound = bind(Judge("got 0"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("Judge", False, True)
    assert bind(Judge("else")).call(ITEM) is False


def test_a_callable_object_with_an_async_call_is_async() -> None:
    assert answer_of(bind(AsyncJudge())) == "got 0"


def test_a_partial_of_an_async_callable_object_is_async() -> None:
    assert answer_of(bind(partial(AsyncJudge()))) == "got 0"


def test_a_bound_method_keeps_its_object() -> None:
    assert ask(Judge("this").method) == "this or got 0"


def test_a_decorator_that_keeps_the_signature_is_seen_through() -> None:
    @wraps(judge_later)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        return await judge_later(*args, **kwargs)

    assert answer_of(bind(traced)) == "got 0"


def test_an_async_decorator_around_a_plain_function_is_async() -> None:
    def judge(outputs: Any) -> Any:
        return outputs["answer"]

    @wraps(judge)
    async def in_a_thread(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(judge, *args, **kwargs)

    assert answer_of(bind(in_a_thread)) == "got 0"


def test_a_lambda_and_a_named_evaluator_have_names() -> None:
    assert bind(lambda outputs: 1).name == "function"
    assert bind(judge_later).name == "judge_later"
    assert bind(judge_later, name="politeness").name == "politeness"


# refusals


def test_a_parameter_that_nothing_fills_is_named_with_what_may_be_asked_for() -> None:
    def judge(outputs: Any, refrence_outputs: Any) -> None: ...

    message = refusal(judge)
    assert message.startswith("evaluator 'judge': asks for 'refrence_outputs', wanted any of ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["item"])


def test_at_run_level_the_message_lists_what_a_run_offers() -> None:
    message = refusal(lambda answers: 1, scope="run", name="average")
    assert message.startswith("evaluator 'average': asks for 'answers', ")
    assert message.rpartition("wanted any of ")[2].split(", ") == list(OFFERED["run"])


@pytest.mark.parametrize("builtin", [max, int])
def test_a_builtin_without_a_signature_is_refused(builtin: Callable[..., Any]) -> None:
    assert f"evaluator {builtin.__name__!r}: its parameters cannot be read" in refusal(builtin)


def test_what_cannot_be_called_is_refused() -> None:
    not_callable: Any = "exact_match"
    assert "its parameters cannot be read" in refusal(not_callable)


# settings


def test_settings_are_passed_by_name() -> None:
    def judge(outputs: Any, threshold: float, *, unit: str = "words") -> Any:
        return outputs, threshold, unit

    assert ask(judge, threshold=0.7, unit="letters") == ({"answer": "got 0"}, 0.7, "letters")


def test_a_setting_fills_a_parameter_without_a_default() -> None:
    def judge(outputs: Any, threshold: float) -> None: ...

    assert "'threshold'" in refusal(judge)
    assert bind(judge, settings={"threshold": 1}).settings == {"threshold": 1}


def test_a_setting_that_the_function_does_not_take_is_refused() -> None:
    def judge(outputs: Any, threshold: float = 0, unit: str = "") -> None: ...

    message = refusal(judge, settings={"treshold": 1})
    assert message == "evaluator 'judge': got the setting 'treshold', wanted one of: threshold, unit"


def test_a_function_without_settings_says_so() -> None:
    assert refusal(lambda outputs: 1, settings={"x": 1}).endswith("got the setting 'x', wanted one of: none")


def test_a_setting_goes_before_an_offered_argument_of_the_same_name() -> None:
    def judge(outputs: Any, metadata: Any) -> Any:
        return outputs, metadata

    assert ask(judge, metadata="mine") == ({"answer": "got 0"}, "mine")


def test_a_setting_goes_before_what_kwargs_would_receive() -> None:
    assert ask(lambda **kwargs: kwargs["metadata"], metadata="mine") == "mine"


def test_kwargs_take_any_setting() -> None:
    assert ask(lambda outputs, **kwargs: kwargs["strict"], strict=True) is True


def test_settings_reach_a_run_level_evaluator() -> None:
    assert ask_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=3) is True
    assert ask_run(lambda outputs, at_least: len(outputs) >= at_least, at_least=4) is False


def test_a_setting_for_a_positional_only_parameter_is_refused_before_the_call() -> None:
    def judge(threshold: float, /, outputs: Any) -> None: ...

    assert "'threshold'" in refusal(judge, settings={"threshold": 1})


def test_kwargs_do_not_let_a_positional_only_setting_through() -> None:
    def judge(threshold: float, /, **_: Any) -> None: ...

    assert "'threshold'" in refusal(judge, settings={"threshold": 1})
