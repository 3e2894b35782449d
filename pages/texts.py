"""Inputs, answers and other JSON of examples as texts for a page."""

import json
from dataclasses import dataclass
from typing import Any

from evalflows.specs.safe_text import json_text

IN_TABLE = 400
"""Characters of a text in a table of many."""

ON_PAGE = 100_000
"""Characters of a text on a page of its own."""


@dataclass(frozen=True, slots=True)
class Clipped:
    """The begin of a text, and how many characters of it are not shown."""

    text: str
    left_out: int


def clipped(text: str, most: int = IN_TABLE) -> Clipped:
    return Clipped(text[:most], max(0, len(text) - most))


def fields_of(content: str | None) -> list[tuple[str | None, str]]:
    """Return the fields of a JSON object as names and texts; a single field, or another value, has no name.

    Empty for None: there is no such content.
    """
    if content is None:
        return []
    value = json.loads(content)
    if not isinstance(value, dict):
        return [(None, _text(value))]
    names = [None] if len(value) == 1 else list(value)
    return [(name, _text(part)) for name, part in zip(names, value.values(), strict=True)]


def shown_text(content: str | None) -> str:
    """Return JSON as one text: a single field as its text, several with their names."""
    fields = fields_of(content)
    return "\n".join(text if name is None else f"{name}: {text}" for name, text in fields)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, indent=1 if isinstance(value, dict | list) else None)
