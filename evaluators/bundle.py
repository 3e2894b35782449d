"""Requests of several judges as one: their tasks one after another, and the texts that they are about once, at the end.

What all examples share so stands first, and a provider's cache of prefixes serves it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.evaluators.prompt_texts import shipped
from evalflows.specs.frozen import dataclass
from evalflows.specs.placeholders import fill
from evalflows.specs.protocols import Message

PROMPT = shipped("bundle")

_FENCED = re.compile(r"\[BEGIN (?:JSON )?([0-9a-f]{16})\]\n.*?\n\[END \1\]", re.DOTALL)

_OF_USER = ("system", "developer", "user")
"""Roles of messages that only ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one judge asks, and the JSON schema of its answer."""

    messages: str | Sequence[Message]
    schema: dict[str, Any]


def can_be_joined(messages: str | Sequence[Message]) -> bool:
    """Return whether a request only asks: one with answers of a model in it is a conversation of its own."""
    return isinstance(messages, str) or all(message.get("role") in _OF_USER for message in messages)


def joined(tasks: Sequence[Task], prompt: str = PROMPT) -> Task:
    """Return one request for all tasks; the answer to each is under its name, as `names_of` gives it.

    Fenced texts are numbered and moved to the end, and those of several tasks are there once. So are files, after them.
    """
    names, numbers, files = names_of(tasks), dict[str, int](), list[dict[str, Any]]()

    def named(match: re.Match[str]) -> str:
        return f"(text {numbers.setdefault(match[0], len(numbers) + 1)})"

    asked = []
    for name, task in zip(names, tasks, strict=True):
        text, of_task = _text_and_files(task.messages)
        files += [file for file in of_task if file not in files]
        asked.append(f"# {name}\n\n{_FENCED.sub(named, text).strip()}")
    texts = "\n\n".join(f"Text {number}:\n{text}" for text, number in numbers.items()) or "(none)"
    values = {"count": str(len(tasks)), "names": ", ".join(names), "tasks": "\n\n".join(asked), "texts": texts}
    content = fill(prompt, values)
    schema = {
        "title": "bundle",
        "type": "object",
        "properties": {name: _within(task.schema, name) for name, task in zip(names, tasks, strict=True)},
        "required": names,
        "additionalProperties": False,
    }
    parts = [{"type": "text", "text": content}, *files]
    return Task(messages=[{"role": "user", "content": parts}] if files else content, schema=schema)


def names_of(tasks: Sequence[Any]) -> list[str]:
    """Return the names of the tasks of a request: plain ones, since providers allow few characters in fields."""
    return [f"task_{number}" for number, _ in enumerate(tasks, 1)]


def _text_and_files(messages: str | Sequence[Message]) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(messages, str):
        return messages, []
    texts, files = list[str](), list[dict[str, Any]]()
    for message in messages:
        content = message.get("content") or ""
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part.get("type") == "text":
                texts.append(part["text"])
            else:
                files.append(part)
    return "\n\n".join(texts), files


def _within(schema: Any, name: str) -> Any:
    """Return a schema as a field of another: its references to parts of itself begin there."""
    if isinstance(schema, Mapping):
        within = {key: _within(value, name) for key, value in schema.items()}
        reference = within.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            within["$ref"] = f"#/properties/{name}{reference[1:]}"
        return within
    return [_within(part, name) for part in schema] if isinstance(schema, list) else schema
