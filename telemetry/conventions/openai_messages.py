"""Messages and responses in OpenAI's form, and what resembles it: LangChain's messages, answers of other providers."""

import json
from collections.abc import Mapping
from typing import Any

from evalflows.specs.protocols import Message
from evalflows.telemetry.conventions.parts import messages_of_parts, tool_call

ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "ChatMessage": "user",
}
"""Other names of roles, as LangChain and Google's models use them."""
KEPT = ("name", "refusal", "reasoning_content")


def parsed(value: Any) -> Any:
    """Return JSON text that is an object or a list as such; any other value, and other text, as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def messages_of(value: Any) -> list[Message]:
    """Return the messages of a value: a message, a list of them, or an object that contains them; else an empty list.

    A batch, a list of lists, counts by its first conversation.
    """
    value = parsed(value)
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], list):
            return messages_of(value[0])
        return [message for item in value for message in messages_of(item)]
    if not isinstance(value, Mapping):
        return []
    return _messages_in(value)


def _messages_in(value: Mapping[str, Any]) -> list[Message]:
    if isinstance(value.get("parts"), list):
        return messages_of_parts(_role(value), value["parts"])
    if isinstance(value.get("kwargs"), Mapping) and "lc" in value:  # LangChain's serialised form
        return [_message({"role": (value.get("id") or ["user"])[-1]} | dict(value["kwargs"]))]
    if value.get("type") in ("function_call", "function_call_output"):
        return [_of_response_item(value)]
    if _is_message(value):
        return [_message(value)]
    return next((found for name in CONTAINERS if (found := messages_of(value.get(name)))), [])


CONTAINERS = ("messages", "choices", "generations", "message", "input", "output", "response")
"""Fields of requests and responses in which messages lie, such as those of chat completions, LangChain and the
Responses API."""


def _is_message(value: Mapping[str, Any]) -> bool:
    role = value.get("role", value.get("type"))
    fields = ("content", "tool_calls", "function_call")
    return isinstance(role, str) and _known(role) and any(name in value for name in fields)


def _known(role: str) -> bool:
    return role in ROLES or role in ("system", "developer", "user", "assistant", "tool", "function")


def _role(value: Mapping[str, Any]) -> str:
    role = str(value.get("role") or value.get("type") or "user")
    return ROLES.get(role, role)


def _message(value: Mapping[str, Any]) -> Message:
    message: Message = {"role": _role(value), "content": _content(value.get("content"))}
    if calls := [_call(call) for call in _calls(value)]:
        message["tool_calls"] = calls
    if identity := value.get("tool_call_id"):
        message["tool_call_id"] = identity
    return message | {name: value[name] for name in KEPT if value.get(name) is not None}


def _content(content: Any) -> Any:
    """Return the content's text if it has nothing else."""
    content = parsed(content) if isinstance(content, list) else content
    if isinstance(content, list) and content and all(_text(part) is not None for part in content):
        return "\n".join(str(_text(part)) for part in content)
    return content


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    is_text = isinstance(part, Mapping) and part.get("type") in ("text", "input_text", "output_text")
    return part["text"] if is_text and isinstance(part.get("text"), str) else None


def _calls(value: Mapping[str, Any]) -> list[Any]:
    calls = value.get("tool_calls") or (value.get("additional_kwargs") or {}).get("tool_calls")
    if not calls and isinstance(value.get("function_call"), Mapping):
        calls = [{"function": value["function_call"]}]
    return [call for call in calls or () if isinstance(call, Mapping)]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call in OpenAI's form, in which the arguments are JSON text."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call  # LangChain's {id, name, args}
    arguments = function.get("arguments", function.get("args"))
    return tool_call(call.get("id") or call.get("call_id"), function.get("name"), arguments)


def _of_response_item(item: Mapping[str, Any]) -> Message:
    """Return an item of the Responses API as a message."""
    if item["type"] == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    return {"role": "assistant", "content": None, "tool_calls": [_call(item)]}
