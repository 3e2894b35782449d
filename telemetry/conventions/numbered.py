"""Conversations in numbered attributes: OpenInference's `llm.input_messages.0.…`, OpenLLMetry's `gen_ai.prompt.0.…`."""

from collections.abc import Mapping
from typing import Any

from evalflows.specs.protocols import Message
from evalflows.telemetry.conventions.openai_messages import messages_of


def openinference(attributes: Mapping[str, Any], prefix: str) -> list[Message]:
    """Return the messages below a prefix such as `llm.input_messages`."""
    items = (_fields(item, "message") for item in numbered(attributes, prefix))
    return [message for item in items for message in messages_of(_of_openinference(item))]


def openllmetry(attributes: Mapping[str, Any], prefix: str, role: str) -> list[Message]:
    """Return the messages below `gen_ai.prompt` or `gen_ai.completion`; `role` is that of messages that name none."""
    items = [item for item in numbered(attributes, prefix) if isinstance(item, Mapping)]
    return [message for item in items for message in messages_of({"role": role, "content": None} | dict(item))]


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the attributes below a prefix as a list of nested objects, in the order of their numbers."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] == ".":
            *path, last = name[len(prefix) + 1 :].split(".")
            _place(tree, path)[last] = value
    found = _listed(tree)
    return found if isinstance(found, list) else []


def _place(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for part in path:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):  # both a value and attributes below it: the latter say more
            below = tree[part] = {}
        tree = below
    return tree


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isdecimal() for name in tree):
        return [_listed(tree[name]) for name in sorted(tree, key=int)]
    return {name: _listed(value) for name, value in tree.items()}


def _fields(item: Any, name: str) -> dict[str, Any]:
    inner = item.get(name) if isinstance(item, Mapping) else None
    return dict(inner) if isinstance(inner, Mapping) else {}


def _of_openinference(item: dict[str, Any]) -> dict[str, Any]:
    message = {"role": item.get("role") or "user", "content": item.get("content")}
    parts = [_part(_fields(part, "message_content")) for part in item.get("contents") or ()]
    if parts and message["content"] is None:
        message["content"] = parts
    if calls := [_fields(call, "tool_call") for call in item.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return message | {name: item[name] for name in ("tool_call_id", "name") if item.get(name)}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    image = part.get("image")
    if isinstance(image, Mapping):
        return {"type": "image_url", "image_url": dict(image.get("image") or image)}
    return part
