"""A chat target: its messages and parameters, what it makes of the answer, and the fields its templates ask for."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evalflows.engine.prepare import fields_with_texts
from evalflows.engine.spec_targets import target_version
from evalflows.specs.errors import CallError, InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.protocols import Completion, Message
from evalflows.specs.target import ChatTarget
from evalflows.targets import chat, check_fields


@dataclass
class Model:
    """Stands in for `complete`: gives one answer, and keeps what it was asked."""

    text: str = "Paris"
    parsed: Any = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    has_thinking: bool = False
    messages: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    repeats: list[int] = field(default_factory=list)

    async def __call__(
        self, messages: str | Sequence[Message], *, model: str | None = None, repeat: int = 0, **parameters: Any
    ) -> Completion:
        self.repeats.append(repeat)
        self.messages, self.parameters = messages, {"model": model} | parameters
        said = {name: getattr(self, name) for name in ("text", "parsed", "tool_calls", "has_thinking")}
        return Completion(**said, model="stub", call_id="call-1")


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


def test_messages_are_the_filled_templates_system_first() -> None:
    target = spec(system="Answer in {language}.", user="{question} Think of {topic}.")
    assert messages(target, question="Why?", language="French", topic="rain") == [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "Why? Think of rain."},
    ]
    target = spec(user="{question} ({topic})")
    assert messages(target, question="What is {topic}?", topic="rain")[0]["content"] == "What is {topic}? (rain)"


def test_prompts_are_files_whose_texts_are_sent_and_belong_to_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def prepared(**settings: Any) -> ChatTarget:
        fields = {"name": "t", "dataset": "d", "targets": [{"kind": "chat", "name": "variant", **settings}]}
        return fields_with_texts(ExperimentSpec.model_validate(fields))["targets"][0]  # type: ignore[no-any-return]

    Path("system.md").write_text("Answer in one word.\n")
    Path("user.md").write_text("{question}?\n")
    read = prepared(system={"file": "system.md"}, user={"file": "user.md"})
    written = prepared(system="Answer in one word.", user="{question}?")
    assert target_version(read, {}) == target_version(written, {})
    assert messages(read, question="Why") == [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Why?"},
    ]
    few = (
        "- {role: user, content: 'Of Spain?'}",
        "- {role: assistant, content: Madrid}",
        "- role: user\n  content: '{q}'",
    )
    Path("messages.yaml").write_text("\n".join(few))
    shots = prepared(messages={"file": "messages.yaml"})
    assert [one["content"] for one in messages(shots, q="Of Peru?")] == ["Of Spain?", "Madrid", "Of Peru?"]
    assert refusal(shots, other=1).startswith("target 'variant': messages.2 asks for {q}, example 'e1' has other (")
    Path("odd.yaml").write_text("- {content: x}\n")
    for settings, message in (
        (
            {"system": "system.md"},
            "system: got the path of a file as the text, wanted {file: system.md}",
        ),
        ({"user": {"file": "none.md"}}, "target 'variant': user: file 'none.md': cannot be read: No such file"),
        ({"messages": {"file": "odd.yaml"}}, "messages.0: got no role, wanted {role, content}"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            prepared(**settings)
    assert prepared(system="See system.md").system == "See system.md"


def test_the_only_field_is_the_default_user_message_whatever_its_name() -> None:
    for name in ("question", "input", "user question", "user-question", "question?", "2nd", "问题"):
        assert messages(spec(), **{name: "Why?"}) == [{"role": "user", "content": "Why?"}]


TURNS = [
    {"role": "user", "content": "I am {name}."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "hello"}]},
]


def test_an_only_field_that_is_a_conversation_is_sent_as_one() -> None:
    assert messages(spec(), turns=TURNS) == TURNS
    assert messages(spec(system="Be kind."), turns=TURNS) == [{"role": "system", "content": "Be kind."}, *TURNS]
    target = spec(messages="turns", system="Be {tone}.", user="So, {question}")
    assert messages(target, turns=TURNS, tone="kind", question="who?", name="no") == [
        {"role": "system", "content": "Be kind."},
        *TURNS,
        {"role": "user", "content": "So, who?"},
    ]


def test_a_conversation_that_is_not_there_is_told_with_the_fields_that_are() -> None:
    said = "target 'variant': messages are read from 'turns', example 'e1' has question, n"
    assert refusal(spec(messages="turns"), question="Why?", n=1) == said
    assert refusal(spec(messages="turns", user="{n}"), question="Why?", n=1) == said
    assert refusal(spec(messages="turns")).endswith("has no field")
    said = "target 'variant': 'turns' of example 'e1' is not a list of {role, content}"
    for value in ("hi", "[]", [], None, {"role": "user"}, ["hi"], [{"content": "hi"}], [{"role": None}]):
        assert refusal(spec(messages="turns"), turns=value) == said
    for target in ({}, {"system": "{n}"}, {"user": "{n}"}):
        asked = spec(messages="turns", **target)
        check_fields(asked, {"turns": TURNS, "n": 1}, "example 'e1'")
        assert messages(asked, turns=TURNS, n=1), "what passes the check can be asked"


def test_each_repetition_is_asked_by_itself_with_extra_parameters_as_they_are() -> None:
    model = Model()
    target = chat(spec(seed=1, extra={"top_p": 0.5, "stop": ["\n"], "user": None}), model)
    for repetition in (0, 2):
        asyncio.run(target.call({"inputs": {"question": "Why?"}, "repetition": repetition}))  # type: ignore[arg-type]
    assert model.repeats == [0, 2]
    assert model.parameters == {"model": None, "seed": 1, "top_p": 0.5, "stop": ["\n"], "user": None}


CALLS = [{"id": "1", "function": {"name": "look_up", "arguments": "{}"}}]


def test_the_fields_of_an_answer_that_has_a_schema_are_the_outputs() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    for model, outputs in (
        (Model('{"city": "Paris"}', {"city": "Paris"}), {"city": "Paris"}),
        (Model('["Paris"]', ["Paris"]), {"output": ["Paris"]}),
        (Model("0", 0), {"output": 0}),
        (Model("null", None), {"output": "null"}),
        (Model("", None, CALLS), {"output": "", "tool_calls": CALLS}),
        (Model('{"city": "Paris"}', {"city": "Paris"}, CALLS), {"city": "Paris", "tool_calls": CALLS}),
    ):
        assert answer(spec(response_schema=schema), model, question="Where?") == outputs
    with pytest.raises(CallError, match="only thinking, no text"):
        answer(spec(), Model(text=" ", has_thinking=True), question="Why?")


def test_a_field_that_the_inputs_lack_is_named_with_those_they_have() -> None:
    for part in ("system", "user"):
        target = spec(**{"user": "{question}", part: "{question} in {langauge}"})
        said = f"target 'variant': {part} asks for {{langauge}}, example 'e1' has question, language"
        assert refusal(target, question="Why?", language="en") == f"{said} (write {{{{ and }}}} for braces)"
    wanted = "target 'variant': wanted a user template, since example 'e1' has question, language"
    assert refusal(spec(system="Be short."), question="Why?", language="en") == wanted
    assert refusal(spec()).endswith("has no field")
