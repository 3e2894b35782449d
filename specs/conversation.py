"""A conversation in OpenAI's messages: whether it is one, and which turns of it are the assistant's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specs.errors import short
from specs.protocols import Message

SYSTEM = ("system", "developer")
"""Roles of who set the conversation up."""
ANSWERING = ("assistant", "tool", "function")
"""Roles of whose messages make up a turn of the assistant's: its own, and those of the tools that it calls."""
ROLES = (*SYSTEM, "user", *ANSWERING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of the assistant's: the messages in a row that are its own or its tools'."""

    number: int  # from 1
    begins: int  # the place of its first message in the conversation, from 0
    ends: int  # the place behind its last


def checked_messages(value: Any) -> list[Message]:
    """The value, if it is a list of messages as OpenAI has them; it may be empty. Else ValueError, in one line."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"messages: got {type(value).__name__}, wanted a list of {{role, content}}")
    for place, message in enumerate(value, start=1):
        if problem := _problem(message):
            raise ValueError(f"messages: {place}: {problem}")
    return [dict(message) for message in value]


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The assistant's turns, in order. Messages of tools without one of the assistant's are none."""
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
