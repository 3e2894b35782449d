"""Templates: placeholders in texts, environment variables in paths."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.permitted import VARIABLE

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")


def filled(text: str, where: str) -> str:
    """Replace each `${NAME}` by that environment variable. Raise InputError if it is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{where}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return VARIABLE.sub(value, text)


def placeholders(template: str) -> set[str]:
    """Return the names of the placeholders in a template."""
    return {match[1] for match in _PART.finditer(template) if match[1]}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Replace every placeholder once; braces inside a value stay unchanged.

    Text is inserted unchanged, null (an empty cell) as nothing, anything else as JSON. Raise KeyError for a name that
    `values` lacks.
    """

    def part(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        value = values[match[1]]
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PART.sub(part, template)


def fill_json(template: Any, values: Mapping[str, object]) -> Any:
    """Fill every text inside a JSON value. A text that is only `{name}` becomes that field unchanged, of any type.

    Raise KeyError for a name that `values` lacks.
    """
    if isinstance(template, dict):
        return {key: fill_json(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_json(value, values) for value in template]
    if not isinstance(template, str):
        return template
    alone = _PART.fullmatch(template)
    return values[alone[1]] if alone and alone[1] else fill(template, values)
