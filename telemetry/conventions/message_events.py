"""OpenTelemetry's older events, one per message: `gen_ai.user.message`, `gen_ai.choice`, and what resembles them."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.specs.protocols import Message
from evalflows.telemetry.conventions.openai_messages import messages_of, parsed

Event = tuple[str, Mapping[str, Any]]
"""Its name, and its attributes or body."""

ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
CHOICE = "gen_ai.choice"
PROMPT, COMPLETION = "gen_ai.content.prompt", "gen_ai.content.completion"
BODIES = ("body", "gen_ai.event.content", "event_body")
"""Attributes under which an event's body may be: of a log record, and of the span events of some packages."""


def messages_of_events(events: Sequence[Event]) -> tuple[list[Message], list[Message]]:
    """Return the request and the answer, in the order of the events; two empty lists if there are no such events."""
    request: list[Message] = []
    answer: list[Message] = []
    for name, fields in events:
        body = _body(fields)
        if name in ROLES:
            request += _message(body, ROLES[name])
        elif name == CHOICE:
            answer += _message(_choice(body), "assistant")
        elif name == PROMPT:
            request += messages_of(fields.get("gen_ai.prompt"))
        elif name == COMPLETION:
            answer += messages_of(fields.get("gen_ai.completion"))
    return request, answer


def events_of_list(value: Any) -> list[Event]:
    """Return events that are one attribute, a list of objects with `event.name`, as earlier pydantic-ai writes them."""
    items = parsed(value)
    items = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return [(str(item["event.name"]), item) for item in items if "event.name" in item]


def _body(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in BODIES:
        body = parsed(fields.get(name))
        if isinstance(body, Mapping):
            return body
        if isinstance(body, str):
            return {"content": body}
    return fields


def _message(body: Mapping[str, Any], role: str) -> list[Message]:
    identity = body.get("tool_call_id") or body.get("id")
    fields = {"role": body.get("role") or role, "content": body.get("content"), "tool_calls": body.get("tool_calls")}
    return messages_of(fields | ({"tool_call_id": identity} if role == "tool" and identity else {}))


def _choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    message = parsed(body.get("message"))
    if isinstance(message, str):
        message = {"content": message}
    return {"tool_calls": body.get("tool_calls")} | dict(message) if isinstance(message, Mapping) else body
