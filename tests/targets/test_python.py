"""A user's function as a target: each field by its name, or the inputs as one dict."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import InputError
from evalflows.targets import Target, python

INPUTS = {"question": "Why?", "language": "en"}
EXAMPLE = ExampleView(id="example-1", inputs=INPUTS)
OFFERED = {
    "inputs": INPUTS,
    "metadata": {"topic": 1},
    "example": EXAMPLE,
    "example_id": "example-1",
    "attachments": {"image.png": "bytes"},
    "repetition": 2,
    "seed": 1234,
}


def answer(function: Callable[..., Any], fields: set[str] | None = None) -> Any:
    return python(function, frozenset(INPUTS if fields is None else fields)).call(OFFERED)


def refusal(function: Callable[..., Any], *fields: str) -> str:
    with pytest.raises(InputError) as caught:
        python(function, frozenset(fields))
    return str(caught.value)


def test_fields_are_handed_over_by_name_or_the_inputs_as_one_dict() -> None:
    assert answer(lambda language, question: (language, question)) == ("en", "Why?")
    assert answer(lambda inputs: inputs) == answer(lambda row: row) == answer(lambda x, /: x) == INPUTS
    assert answer(lambda question: question, fields=set()) == INPUTS, "not all examples have it"
    assert "'language'" in refusal(lambda question, language: 1, "question")


def test_what_an_example_has_besides_may_be_asked_for() -> None:
    def target(question: str, metadata: Any, example: Any, example_id: Any, attachments: Any) -> dict[str, Any]:
        return {"metadata": metadata, "example": example, "example_id": example_id, "attachments": attachments}

    found = answer(target)
    assert found == {name: OFFERED[name] for name in found}


def test_the_repetition_and_a_seed_may_be_asked_for_and_those_of_the_user_go_first() -> None:
    assert answer(lambda question, repetition, seed: (question, repetition, seed)) == ("Why?", 2, 1234)
    assert answer(lambda row, seed: (row, seed)) == (INPUTS, 1234)
    assert answer(lambda question, *, seed=0: seed) == 1234
    available = OFFERED | {"inputs": {"question": "Why?", "seed": 7}}
    assert python(lambda question, seed: seed, frozenset({"question", "seed"})).call(available) == 7

    def target(question: str, seed: int) -> int:
        return seed

    assert answer(partial(target, seed=9)) == 9


class Application:
    def __call__(self, question: str) -> str:
        return f"answer to {question}"


class AsyncApplication:
    async def __call__(self, question: str) -> str:
        return f"later answer to {question}"


async def answer_later(question: str, suffix: str = "") -> str:
    await asyncio.sleep(0)
    return question + suffix


def test_what_is_async_gives_something_to_await_and_a_plain_callable_is_called_at_once() -> None:
    async def wait(target: Target) -> Any:
        return await target.call(OFFERED)

    for function, wanted in (
        (answer_later, "Why?"),
        (partial(answer_later, suffix="!"), "Why?!"),
        (AsyncApplication(), "later answer to Why?"),
    ):
        target = python(function, frozenset(INPUTS))
        assert target.is_async is True
        assert asyncio.run(wait(target)) == wanted
    for plain in (Application(), Application().__call__, partial(Application())):
        target = python(plain, frozenset(INPUTS))
        assert target.is_async is False
        assert target.call(OFFERED) == "answer to Why?"


def test_a_parameter_that_nothing_fills_is_named_with_what_may_be_asked_for() -> None:
    def target(question: str, langauge: str) -> None: ...

    assert refusal(target, *INPUTS) == (
        "target 'target': asks for 'langauge', wanted a field of the inputs (language, question), "
        "one of inputs, metadata, example, example_id, attachments, repetition, seed, or the inputs as one argument"
    )
