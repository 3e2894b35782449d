"""Values at a path in stored observations."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.specs.errors import InputError

_STEP = re.compile(r"([A-Za-z_][\w\-]*)((?:\[[^\[\]]*\])*)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def parsed_path(path: str) -> list[tuple[str, list[str]]]:
    """Return a path's steps: a field, and what is in brackets after it. Raise InputError if it is no path."""
    steps, rest = [], path
    while rest:
        found = _STEP.match(rest)
        dot, rest = (rest[found.end() : found.end() + 1], rest[found.end() + 1 :]) if found else ("", rest)
        if not found or dot not in ("", ".") or (dot and not rest):
            raise InputError(f"path {path!r}: wanted fields such as output, or observations[type=tool].output")
        steps.append((found[1], _BRACKETS.findall(found[2])))
    if not steps:
        raise InputError("path: got an empty text, wanted a field such as output")
    return steps


def at_path(item: Any, path: str) -> Any:
    """Return the value at a path; None where a field is missing.

    A field of a list is the list of this field of its elements, so a path to all observations of a type gives a list,
    never just the last. `[field=value]` keeps the elements that have this value, and `[0]` is the first element.
    """
    value = item
    for name, brackets in parsed_path(path):
        value = _field(value, name)
        for bracket in brackets:
            value = _chosen(value, bracket)
    return value


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_field(element, name) for element in value]
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _chosen(value: Any, bracket: str) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    name, is_condition, wanted = bracket.partition("=")
    if is_condition:
        return [element for element in value if str(_field(element, name.strip())) == wanted.strip()]
    index = int(bracket) if re.fullmatch(r"-?\d+", bracket) else None
    return value[index] if index is not None and -len(value) <= index < len(value) else None
