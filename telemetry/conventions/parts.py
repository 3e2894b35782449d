"""OpenTelemetry's messages with `parts`: text, reasoning, tool_call, tool_call_response, and others, such as blobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.specs.protocols import Message

TEXT = ("text", "refusal")
REASONING = ("reasoning", "thinking")


def messages_of_parts(role: str, parts: Sequence[Any]) -> list[Message]:
    """Return a message with parts in OpenAI's form: one message, and one more for each tool's response.

    Content is None where it was not captured: an instrumentation may name the parts and leave out what is in them.
    """
    parts = [part for part in parts if isinstance(part, Mapping)]
    responses = [_response(part) for part in parts if part.get("type") == "tool_call_response"]
    others = [part for part in parts if part.get("type") != "tool_call_response"]
    return [*([_message(role, others)] if others or not responses else []), *responses]


def tool_call(identity: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a tool call in OpenAI's form. Its arguments are JSON text; None if they were not captured."""
    text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments, ensure_ascii=False)
    return {"id": identity, "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _message(role: str, parts: Sequence[Mapping[str, Any]]) -> Message:
    message: Message = {"role": role, "content": _content([part for part in parts if not _is_aside(part)])}
    reasoning = [part["content"] for part in parts if part.get("type") in REASONING and part.get("content")]
    if reasoning:
        message["reasoning_content"] = "\n".join(map(str, reasoning))
    if calls := [part for part in parts if part.get("type") == "tool_call"]:
        message["tool_calls"] = [tool_call(part.get("id"), part.get("name"), part.get("arguments")) for part in calls]
    return message


def _is_aside(part: Mapping[str, Any]) -> bool:
    return part.get("type") in (*REASONING, "tool_call")


def _content(parts: Sequence[Mapping[str, Any]]) -> Any:
    """Return text if there is nothing else, else parts in OpenAI's form; None if nothing was captured."""
    filled = [part for part in parts if part.get("type") not in TEXT or part.get("content") is not None]
    if not filled:
        return None
    if all(part.get("type") in TEXT for part in filled):
        return "\n".join(str(part["content"]) for part in filled)
    texts = ({"type": "text", "text": part["content"]} if part.get("type") in TEXT else dict(part) for part in filled)
    return list(texts)


def _response(part: Mapping[str, Any]) -> Message:
    found = next((part[name] for name in ("response", "result", "content") if part.get(name) is not None), None)
    text = found if isinstance(found, str) or found is None else json.dumps(found, ensure_ascii=False)
    return {"role": "tool", "content": text, "tool_call_id": part.get("id")}
