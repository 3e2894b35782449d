"""A target behind HTTP: what is posted for an example, and where its answer stands in the response."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalflows.specs.errors import TRANSIENT, CallError, InputError
from evalflows.specs.protocols import Posted
from evalflows.specs.target import HttpTarget
from evalflows.targets import Answer, at_path, check_body, http


@dataclass
class Application:
    """Stands in for `post`: gives one response, and keeps what was posted."""

    response: Any = "Paris"
    bodies: list[Any] = field(default_factory=list)

    async def __call__(self, body: Any) -> Posted:
        self.bodies.append(body)
        return Posted(response=self.response, attempts=2, latency_s=0.25)


def spec(**settings: Any) -> HttpTarget:
    return HttpTarget(kind="http", name="app", url="http://localhost", **settings)


def ask(target: HttpTarget, application: Application, **inputs: Any) -> Answer:
    made = http(target, application)
    assert made.is_async is True

    async def wait() -> Any:
        return await made.call({"inputs": inputs})

    answer = asyncio.run(wait())
    assert isinstance(answer, Answer)
    return answer


def test_a_body_is_filled_and_a_field_alone_keeps_its_type() -> None:
    inputs = {"question": "Why?", "n": 7, "turns": [{"role": "user", "content": "{n}"}]}
    for body, wanted in (
        ("{question}", "Why?"),
        ({"q": "{question}", "fixed": [1, None, True]}, {"q": "Why?", "fixed": [1, None, True]}),
        ({"n": "{n}", "text": "{n}!"}, {"n": 7, "text": "7!"}),
        ({"turns": "{turns}"}, {"turns": [{"role": "user", "content": "{n}"}]}),
        ([{"a": {"b": ["{question}"]}}], [{"a": {"b": ["Why?"]}}]),
        ({"{question}": 1}, {"{question}": 1}),
        ('{{"q": "{question}"}}', '{"q": "Why?"}'),
        ({}, {}),
    ):
        ask(spec(body=body), application := Application(), **inputs)
        assert application.bodies == [wanted]
        assert type(application.bodies[0]) is type(wanted)


def test_an_answer_stands_at_a_path_of_names_and_positions() -> None:
    for path, wanted in (
        ("choices.0.message.content", "Paris"),
        ("choices.-2.message", {"content": "Paris"}),
        ("choices.-1.message.content", None),
        ("choices.00.message.content", "Paris"),
        *(("0", "by name"), ("-1", "by name too"), ("", "of no name"), ("empty", [])),
    ):
        assert ask(spec(answer=path), Application(RESPONSE)).outputs == wanted, path


def test_a_path_at_which_there_is_nothing_is_told_with_what_there_is() -> None:
    for path, said in (
        ("answer", "got a mapping with choices, 0, -1, , empty before 'answer'"),
        ("choices.2", "got a list of 2 before '2'"),
        ("choices.-3", "got a list of 2 before '-3'"),
        ("choices.first", "got a list of 2 before 'first'"),
        ("choices.1.0", "got a mapping with message before '0'"),
        ("choices. 1", "got a list of 2 before ' 1'"),
        ("choices.1_0", "got a list of 2 before '1_0'"),
        ("choices.0.message.content.text", "got str before 'text'"),
        ("choices.1.message.content.text", "got NoneType before 'text'"),
        *((path, "got a list of 2 before") for path in ("choices.--1", "choices." + "9" * 5000)),
    ):
        with pytest.raises(CallError) as caught:
            at_path(RESPONSE, path)
        assert str(caught.value).startswith(f"the response has nothing at {path!r}, {said}")
        assert caught.value.kind == "bad_return" and caught.value.kind not in TRANSIENT


def test_an_answer_says_what_it_took() -> None:
    answer = ask(spec(), Application(), question="Where?")
    assert (answer.outputs, answer.attempts, answer.latency_s) == ("Paris", 2, 0.25)
    assert (answer.tokens_in, answer.cost_usd, answer.reused_from) == (None, None, None)


RESPONSE = {
    "choices": [{"message": {"content": "Paris"}}, {"message": {"content": None}}],
    "0": "by name",
    "-1": "by name too",
    "": "of no name",
    "empty": [],
}


def test_a_field_that_the_inputs_lack_is_named_with_those_they_have() -> None:
    for body in ("{lang}", "{question} {lang}", {"a": [1, {"b": "in {lang}"}]}, ["{question}", "{lang}"]):
        with pytest.raises(InputError) as caught:
            check_body(spec(body=body), {"question": "Why?", "n": 1}, "example 'e1'")
        assert str(caught.value) == "target 'app': body asks for {lang}, example 'e1' has question, n"
