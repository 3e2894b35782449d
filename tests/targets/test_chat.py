"""A chat target: its messages and parameters, what it makes of the answer, and the fields its templates ask for."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from specs.errors import CallError, InputError
from specs.protocols import Completion, Message
from specs.target import ChatTarget
from targets.chat import chat, check_fields


@dataclass
class Model:
    """Stands in for `complete`: gives one answer, and keeps what it was asked."""

    text: str = "Paris"
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    messages: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        assert (schema, repeat) == (None, 0)
        self.messages, self.parameters = messages, {"model": model} | parameters
        return Completion(text=self.text, tool_calls=self.tool_calls, model="stub", call_id="call-1")


def spec(**settings: Any) -> ChatTarget:
    return ChatTarget(kind="chat", name="variant", **settings)


def answer(target: ChatTarget, model: Model, **inputs: Any) -> dict[str, Any]:
    made = chat(target, model)
    assert made.is_async is True

    async def wait() -> Any:
        return await made.call({"inputs": inputs})

    outputs: dict[str, Any] = asyncio.run(wait())
    return outputs


def messages(target: ChatTarget, **inputs: Any) -> Any:
    model = Model()
    answer(target, model, **inputs)
    return model.messages


def refusal(target: ChatTarget, **inputs: Any) -> str:
    with pytest.raises(InputError) as caught:
        check_fields(target, inputs, "example 'e1'")
    return str(caught.value)


# messages


def test_messages_are_the_filled_templates_system_first() -> None:
    target = spec(system="Answer in {language}.", user="{question} Think of {topic}.")
    assert messages(target, question="Why?", language="French", topic="rain") == [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "Why? Think of rain."},
    ]


def test_without_a_system_template_there_is_no_system_message() -> None:
    assert messages(spec(user="{question}"), question="Why?") == [{"role": "user", "content": "Why?"}]


@pytest.mark.parametrize("name", ["question", "input", "user question", "user-question", "question?", "2nd", "问题"])
def test_the_only_field_is_the_default_user_message_whatever_its_name(name: str) -> None:
    assert messages(spec(), **{name: "Why?"}) == [{"role": "user", "content": "Why?"}]


def test_the_only_field_is_sent_as_it_is() -> None:
    text = 'Say {question} and {{braces}} and {"json": 1}'
    assert messages(spec(), question=text) == [{"role": "user", "content": text}]


def test_an_only_field_that_is_no_text_is_sent_as_json() -> None:
    assert messages(spec(), rows=[{"city": "Zürich"}]) == [{"role": "user", "content": '[{"city": "Zürich"}]'}]


def test_braces_in_a_value_are_not_filled_again() -> None:
    target = spec(user="{question} ({topic})")
    assert messages(target, question="What is {topic}?", topic="rain")[0]["content"] == "What is {topic}? (rain)"


def test_doubled_braces_in_a_template_are_braces() -> None:
    assert messages(spec(user='{{"q": "{question}"}}'), question="Why?")[0]["content"] == '{"q": "Why?"}'


# parameters


def test_parameters_that_are_given_are_passed_on() -> None:
    model = Model()
    answer(spec(model="small", temperature=0.0, max_tokens=5, seed=0), model, question="Why?")
    assert model.parameters == {"model": "small", "temperature": 0.0, "max_tokens": 5, "seed": 0}


def test_parameters_that_are_none_are_left_out() -> None:
    model = Model()
    answer(spec(), model, question="Why?")
    assert model.parameters == {"model": None}


def test_extra_parameters_are_passed_on_as_they_are() -> None:
    model = Model()
    answer(spec(seed=1, extra={"top_p": 0.5, "stop": ["\n"], "user": None}), model, question="Why?")
    assert model.parameters == {"model": None, "seed": 1, "top_p": 0.5, "stop": ["\n"], "user": None}


# answers


def test_the_answer_is_the_output() -> None:
    assert answer(spec(), Model("Paris"), question="Where?") == {"output": "Paris"}


def test_an_empty_answer_is_an_output_too() -> None:
    assert answer(spec(), Model(""), question="Where?") == {"output": ""}


def test_tool_calls_are_kept() -> None:
    calls = [{"id": "1", "function": {"name": "look_up", "arguments": '{"city": "Paris"}'}}]
    assert answer(spec(), Model("", calls), question="Where?") == {"output": "", "tool_calls": calls}


def test_a_call_that_failed_is_not_hidden() -> None:
    async def fail(*args: Any, **kwargs: Any) -> Completion:
        raise CallError("timeout", "no answer in 1 s", attempts=3)

    async def wait() -> Any:
        return await chat(spec(), fail).call({"inputs": {"question": "Why?"}})

    with pytest.raises(CallError, match="no answer in 1 s") as caught:
        asyncio.run(wait())
    assert (caught.value.kind, caught.value.attempts) == ("timeout", 3)


# check_fields


@pytest.mark.parametrize("part", ["system", "user"])
def test_a_field_that_the_inputs_lack_is_named_with_those_they_have(part: str) -> None:
    target = spec(**{"user": "{question}", part: "{question} in {langauge}"})
    assert refusal(target, question="Why?", language="en") == (
        f"target 'variant': {part} asks for {{langauge}}, example 'e1' has question, language "
        "(write {{ and }} for braces)"
    )


def test_inputs_without_any_field_are_said_to_have_none() -> None:
    assert "example 'e1' has no field" in refusal(spec(user="{question}"))


def test_without_a_user_template_only_one_field_will_do() -> None:
    wanted = "target 'variant': wanted a user template, since example 'e1' has question, language"
    assert refusal(spec(system="Be short."), question="Why?", language="en") == wanted
    assert refusal(spec()).endswith("has no field")


@pytest.mark.parametrize(
    ("target", "inputs"),
    [
        (spec(), {"anything": "Why?"}),
        (spec(system="{question}"), {"question": "Why?"}),
        (spec(user="no field at all"), {"question": "Why?", "language": "en"}),
        (spec(user='{{braces}} {"json": 1} {question}'), {"question": "Why?", "language": "en"}),
    ],
)
def test_what_passes_the_check_can_be_asked(target: ChatTarget, inputs: dict[str, Any]) -> None:
    check_fields(target, inputs, "example 'e1'")
    assert [message["role"] for message in messages(target, **inputs)][-1] == "user"
