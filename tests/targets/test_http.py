"""A target behind HTTP: what is posted for an example, and where its answer stands in the response."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalflows.specs.errors import TRANSIENT, CallError, InputError
from evalflows.specs.protocols import Posted
from evalflows.specs.target import HttpTarget
from evalflows.specs.template import fill_json
from evalflows.targets.http import at_path, check_body, http
from evalflows.targets.target import Answer


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


def test_without_a_body_the_inputs_are_posted() -> None:
    assert posted(None, question="Why?", n=[1, None]) == {"question": "Why?", "n": [1, None]}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("{question}", "Why?"),
        ("Q: {question} ({n})", "Q: Why? (7)"),
        ({"q": "{question}", "fixed": [1, None, True]}, {"q": "Why?", "fixed": [1, None, True]}),
        ({"n": "{n}", "text": "{n}!"}, {"n": 7, "text": "7!"}),
        ({"turns": "{turns}"}, {"turns": [{"role": "user", "content": "{n}"}]}),
        ([{"a": {"b": ["{question}"]}}], [{"a": {"b": ["Why?"]}}]),
        ({"{question}": 1}, {"{question}": 1}),
        ('{{"q": "{question}"}}', '{"q": "Why?"}'),
        ({}, {}),
        ([], []),
        ("", ""),
        (0, 0),
        (False, False),
    ],
    ids=repr,
)
def test_a_body_is_filled_and_a_field_alone_keeps_its_type(body: object, wanted: object) -> None:
    inputs = {"question": "Why?", "n": 7, "turns": [{"role": "user", "content": "{n}"}]}
    found = posted(body, **inputs)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_body_serves_every_example() -> None:
    target, application = spec(body={"q": ["{question}"]}), Application()
    for question in ("Why?", "Who?"):
        ask(target, application, question=question)
    assert application.bodies == [{"q": ["Why?"]}, {"q": ["Who?"]}]
    assert target.body == {"q": ["{question}"]}


# What is made of the response


def test_an_answer_says_what_it_took() -> None:
    answer = ask(spec(), Application(), question="Where?")
    assert (answer.outputs, answer.attempts, answer.latency_s) == ("Paris", 2, 0.25)
    assert (answer.tokens_in, answer.cost_usd, answer.reused_from) == (None, None, None)


@pytest.mark.parametrize("response", [{"a": 1}, ["a"], "text", "", 0, None])
def test_without_a_path_the_answer_is_all_of_the_response(response: object) -> None:
    assert ask(spec(), Application(response)).outputs == response


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
        ("choices.-", "got a list of 2 before '-'"),
        ("choices.", "got a list of 2 before ''"),
        ("choices.1.0", "got a mapping with message before '0'"),
        ("choices.²", "got a list of 2 before '²'"),
        ("choices. 1", "got a list of 2 before ' 1'"),
        ("choices.1_0", "got a list of 2 before '1_0'"),
        ("empty.0", "got a list of 0 before '0'"),
        ("empty.-1", "got a list of 0 before '-1'"),
        ("0.0", "got str before '0'"),
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


@pytest.mark.parametrize("response", ["text", 7, None, True, 1.5])
def test_a_response_that_is_one_value_has_nothing_below_it(response: object) -> None:
    said = f"the response has nothing at 'answer', got {type(response).__name__} before 'answer'"
    assert str(lost(response, "answer")) == said


def test_an_empty_response_is_said_to_hold_nothing() -> None:
    assert str(lost({}, "answer")).endswith("got a mapping with nothing before 'answer'")


@pytest.mark.parametrize("response", [dict.fromkeys(map(str, range(10_000))), {"two\nlines": 1}], ids=["many", "lines"])
def test_what_a_response_holds_is_told_in_one_line_that_is_not_long(response: dict[str, Any]) -> None:
    said = str(lost(response, "answer"))
    assert len(said) < 500
    assert "\n" not in said


def test_a_post_that_failed_is_not_hidden() -> None:
    async def fail(body: Any) -> Posted:
        raise CallError("timeout", "no answer in time", attempts=3)

    async def wait() -> Any:
        return await http(spec(), fail).call({"inputs": {}})

    with pytest.raises(CallError) as caught:
        asyncio.run(wait())
    assert (caught.value.kind, caught.value.attempts) == ("timeout", 3)


# check_body


@pytest.mark.parametrize(
    "body", ["{lang}", "{question} {lang}", {"a": [1, {"b": "in {lang}"}]}, ["{question}", "{lang}"]], ids=repr
)
def test_a_field_that_the_inputs_lack_is_named_with_those_they_have(body: object) -> None:
    with pytest.raises(InputError) as caught:
        check_body(spec(body=body), {"question": "Why?", "n": 1}, "example 'e1'")
    assert str(caught.value) == "target 'app': body asks for {lang}, example 'e1' has question, n"


def test_inputs_without_any_field_are_said_to_have_none() -> None:
    with pytest.raises(InputError, match=r"example 'e1' has no field$"):
        check_body(spec(body="{question}"), {}, "example 'e1'")


@pytest.mark.parametrize(
    "body",
    [None, "", 7, {}, "{question}", {"{lang}": "{question}"}, "{{lang}}", '{"lang": 1}', ["{n}", None]],
    ids=repr,
)
def test_what_passes_the_check_can_be_posted(body: object) -> None:
    inputs = {"question": "Why?", "n": 1}
    check_body(spec(body=body), inputs, "example 'e1'")
    fill_json(body, inputs)
