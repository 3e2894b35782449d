"""Prompt templates: `{name}` is replaced by a field, `{{` and `}}` stand for braces."""

import json
import re
from collections.abc import Mapping

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")


def placeholders(template: str) -> set[str]:
    """The names that a template asks for."""
    return {match[1] for match in _PART.finditer(template) if match[1]}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Replace every placeholder, once: braces inside a value stay as they are.

    Text goes in as it is, anything else as JSON. Raises KeyError for a name that `values` lacks.
    """

    def part(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        value = values[match[1]]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PART.sub(part, template)
