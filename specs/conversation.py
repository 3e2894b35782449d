"""Conversations as lists of OpenAI messages: validating them, and finding the assistant's turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.specs.errors import short
from evalflows.specs.protocols import Message

SYSTEM = ("system", "developer")
"""Roles of messages that set up the conversation."""
ANSWERING = ("assistant", "tool", "function")
"""Roles of messages within an assistant turn: its own, and those of the tools that it calls."""
ROLES = (*SYSTEM, "user", *ANSWERING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assistant turn: consecutive messages of the assistant and of its tools."""

    number: int  # from 1
    begins: int  # index of its first message in the conversation
    ends: int  # index after its last message


def checked_messages(value: Any) -> list[Message]:
    """Return the value as a list of OpenAI messages, which may be empty. Raise ValueError, in one line, if invalid."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"messages: got {type(value).__name__}, wanted a list of {{role, content}}")
    for place, message in enumerate(value, start=1):
        if problem := _problem(message):
            raise ValueError(f"messages: {place}: {problem}")
    return [dict(message) for message in value]


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Return the assistant's turns, in order. Tool messages without an assistant message are not a turn."""
    turns: list[Turn] = []
    begins = 0
    for place in range(len(messages) + 1):
        if place < len(messages) and messages[place]["role"] in ANSWERING:
            continue
        if any(message["role"] == "assistant" for message in messages[begins:place]):
            turns.append(Turn(number=len(turns) + 1, begins=begins, ends=place))
        begins = place + 1
    return turns


def _problem(message: Any) -> str | None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return f"got {short(message)}, wanted {{role, content}}"
    if message["role"] not in ROLES:
        return f"got the role {short(message['role'])}, wanted one of {', '.join(ROLES)}"
    content, calls = message.get("content"), message.get("tool_calls")
    parts = isinstance(content, list) and all(isinstance(part, Mapping | str) for part in content)
    if content is not None and not isinstance(content, str) and not parts:
        return f"got the content {short(content)}, wanted a text or a list of parts"
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, Mapping) for call in calls)):
        return f"got the tool_calls {short(calls)}, wanted a list of calls"
    return None
