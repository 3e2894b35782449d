"""A target behind HTTP: what is posted for an example, and where its answer stands in the response."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalflows.specs.errors import TRANSIENT, CallError, InputError, Posted
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


def posted(body: Any, **inputs: Any) -> Any:
    application = Application()
    ask(spec(body=body), application, **inputs)
    (only,) = application.bodies
    return only


def lost(response: Any, path: str) -> CallError:
    """What is said of a path at which there is nothing."""
    with pytest.raises(CallError) as caught:
        at_path(response, path)
    return caught.value


# What is posted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("{question}", "Why?"),
        ({"q": "{question}", "fixed": [1, None, True]}, {"q": "Why?", "fixed": [1, None, True]}),
        ({"n": "{n}", "text": "{n}!"}, {"n": 7, "text": "7!"}),
        ({"turns": "{turns}"}, {"turns": [{"role": "user", "content": "{n}"}]}),
        ([{"a": {"b": ["{question}"]}}], [{"a": {"b": ["Why?"]}}]),
        ({"{question}": 1}, {"{question}": 1}),
        ('{{"q": "{question}"}}', '{"q": "Why?"}'),
        ({}, {}),
    ],
    ids=repr,
)
def test_a_body_is_filled_and_a_field_alone_keeps_its_type(body: object, wanted: object) -> None:
    inputs = {"question": "Why?", "n": 7, "turns": [{"role": "user", "content": "{n}"}]}
    found = posted(body, **inputs)
    assert found == wanted
    assert type(found) is type(wanted)


# What is made of the response


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


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("choices.0.message.content", "Paris"),
        ("choices.-2.message", {"content": "Paris"}),
        ("choices.-1.message.content", None),
        ("choices.00.message.content", "Paris"),
        ("0", "by name"),
        ("-1", "by name too"),
        ("", "of no name"),
        ("empty", []),
    ],
)
def test_an_answer_stands_at_a_path_of_names_and_positions(path: str, wanted: object) -> None:
    assert ask(spec(answer=path), Application(RESPONSE)).outputs == wanted


@pytest.mark.parametrize(
    ("path", "said"),
    [
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
    ],
    ids=lambda value: value[:30],
)
def test_a_path_at_which_there_is_nothing_is_told_with_what_there_is(path: str, said: str) -> None:
    error = lost(RESPONSE, path)
    assert str(error).startswith(f"the response has nothing at {path!r}, {said}")
    assert error.kind == "bad_return"
    assert error.kind not in TRANSIENT


# check_body


@pytest.mark.parametrize(
    "body", ["{lang}", "{question} {lang}", {"a": [1, {"b": "in {lang}"}]}, ["{question}", "{lang}"]], ids=repr
)
def test_a_field_that_the_inputs_lack_is_named_with_those_they_have(body: object) -> None:
    with pytest.raises(InputError) as caught:
        check_body(spec(body=body), {"question": "Why?", "n": 1}, "example 'e1'")
    assert str(caught.value) == "target 'app': body asks for {lang}, example 'e1' has question, n"
