"""What was said between an application and a model, as OpenAI messages, from any instrumentation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalflows.specs.attribute_aliases import NOT_CAPTURED
from evalflows.specs.protocols import Message
from evalflows.telemetry.conventions.message_events import Event, events_of_list, messages_of_events
from evalflows.telemetry.conventions.numbered import openinference, openllmetry
from evalflows.telemetry.conventions.openai_messages import messages_of, parsed

DETAILS = "gen_ai.client.inference.operation.details"
"""The event with the content of a model call."""
INPUT, OUTPUT, SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
OF_AGENT = "pydantic_ai.all_messages"
OLDER_LISTS = ("events", "all_messages_events")
"""Attributes of earlier pydantic-ai that are lists of events."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The request to a model and its answer. An empty list where there is none, or none is known."""

    request: list[Message] = field(default_factory=list)
    answer: list[Message] = field(default_factory=list)

    def captured(self) -> "Conversation":
        """Return it without the sides whose content was not captured: an instrumentation may keep roles and names."""
        return Conversation(*(side if has_content(side) else [] for side in (self.request, self.answer)))


def has_content(messages: Sequence[Message]) -> bool:
    """Whether any text, or any argument of a tool call, is in the messages."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return any(message.get("content") is not None for message in messages) or any(
        call["function"]["arguments"] is not None for call in calls
    )


def conversation_of(
    attributes: Mapping[str, Any], events: Sequence[Event], values: tuple[Any, Any] = (None, None)
) -> Conversation:
    """Return the conversation of a model call or an agent.

    `events` are its span events and log records; `values` are its input and output, which count where nothing that is
    made for messages was captured: text is a message of the user, or the model's answer.
    """
    request: list[Message] = []
    answer: list[Message] = []
    for found in _found(attributes, events):
        request, answer = request or found.request, answer or found.answer
    return Conversation(request or _of_value(values[0], "user"), answer or _of_value(values[1], "assistant"))


def _found(attributes: Mapping[str, Any], events: Sequence[Event]) -> Iterator[Conversation]:
    """Yield what each convention says, the newest first."""
    for fields in (attributes, *(fields for name, fields in events if name == DETAILS)):
        yield _of_genai(fields)
    yield _of_agent(attributes)
    yield Conversation(*messages_of_events(events))
    for name in OLDER_LISTS:
        yield Conversation(*_split(messages_of_events(events_of_list(attributes.get(name)))))
    yield Conversation(
        openinference(attributes, "llm.input_messages"), openinference(attributes, "llm.output_messages")
    )
    yield Conversation(
        openllmetry(attributes, "gen_ai.prompt", "user"), openllmetry(attributes, "gen_ai.completion", "assistant")
    )


def _of_genai(attributes: Mapping[str, Any]) -> Conversation:
    request, answer = messages_of(attributes.get(INPUT)), messages_of(attributes.get(OUTPUT))
    return Conversation([*_instructions(attributes), *request] if request else [], answer)


def _instructions(attributes: Mapping[str, Any]) -> list[Message]:
    value = parsed(attributes.get(SYSTEM))
    if isinstance(value, str):
        return [{"role": "system", "content": value}]
    return [] if value is None else messages_of({"role": "system", "parts": value})


def _of_agent(attributes: Mapping[str, Any]) -> Conversation:
    """Return an agent's conversation: its request ends with the last message of the user."""
    messages = messages_of(attributes.get(OF_AGENT))
    request, answer = _split((messages, []))
    return Conversation([*_instructions(attributes), *request] if request else [], answer)


def _split(sides: tuple[list[Message], list[Message]]) -> tuple[list[Message], list[Message]]:
    """Move what follows the last message of the user from the request to the answer."""
    request, answer = sides
    users = [place for place, message in enumerate(request) if message["role"] == "user"]
    end = users[-1] + 1 if users and not answer else len(request)
    return request[:end], request[end:] + answer


def _of_value(value: Any, role: str) -> list[Message]:
    value = parsed(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value != NOT_CAPTURED else []
    return messages_of(value)


def last_user_text(messages: Sequence[Message]) -> Any:
    """Return the content of the last message of the user; None if there is none."""
    return next((message.get("content") for message in reversed(messages) if message["role"] == "user"), None)


def answer_text(messages: Sequence[Message]) -> Any:
    """Return the content of the assistant's last message; None if it has none, as when it only calls tools."""
    said = (message.get("content") for message in reversed(messages) if message["role"] == "assistant")
    return next((content for content in said if content not in (None, "", [])), None)
