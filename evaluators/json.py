"""Check a JSON value against its schema, field by field."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalflows.evaluators.json_values import value_errors

if TYPE_CHECKING:
    from jsonschema import ValidationError

FieldPath = tuple[str | int, ...]
"""The path of a field: names and list indices."""

_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The number of fields, and what is wrong with them."""

    fields: int
    wrong: int
    problems: Sequence[str]  # one line each, with the path

    @property
    def share(self) -> float:
        return (self.fields - self.wrong) / self.fields


def checked(value: Any, schema: dict[str, Any] | bool) -> Checked:
    """Count the fields of a value, and those that violate the schema.

    Raise ValueError for an invalid schema, as `value_errors` does.
    """
    errors = value_errors(value, schema)
    paths = {*_field_paths(schema, value, ())}
    wrong: set[FieldPath] = set()
    uncounted = 0
    for error in errors:
        affected = _affected_fields(error, paths)
        wrong |= affected
        uncounted += 0 if affected else _count_uncounted(error)
    problems = [_problem_line(error) for error in errors]
    return Checked(fields=len(paths) + uncounted, wrong=len(wrong) + uncounted, problems=problems)


def _field_paths(schema: Any, value: Any, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the fields that are required or present. A missing object, or a non-object, lacks its required fields."""
    described, required = _fields(schema)
    present = value if isinstance(value, dict) else {}
    counted = [name for name in {**described, **dict.fromkeys(required)} if name in present or name in required]
    if not counted:
        yield path
    for name in counted:
        yield from _field_paths(described.get(name, True), present.get(name), (*path, name))


def _fields(schema: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that a schema describes, and those that it requires."""
    if not isinstance(schema, dict):
        return {}, []
    required = schema.get("required")
    return schema.get("properties") or {}, required if isinstance(required, list) else []


def _affected_fields(error: "ValidationError", paths: set[FieldPath]) -> set[FieldPath]:
    """Return the paths of the fields that an error concerns: none for a whole object or an uncounted field."""
    path_of_error: FieldPath = tuple(error.absolute_path)
    missing = _missing(error)
    if missing is not None:
        path_of_error = (*path_of_error, missing)
    below = {path for path in paths if _is_within(path, path_of_error)}
    if below and (missing is not None or error.validator == "type" or below == {path_of_error}):
        return below
    return set() if below else {path for path in paths if _is_within(path_of_error, path)}


def _missing(error: "ValidationError") -> str | None:
    """Return the name of a missing required field, or None. jsonschema gives it in the message only."""
    names: Any = error.validator_value if error.validator == "required" else []
    listed = names if isinstance(names, list) else []
    return next((name for name in listed if error.message.startswith(f"{name!r} is a required")), None)


def _is_within(path: FieldPath, outer: FieldPath) -> bool:
    return path[: len(outer)] == outer


def _count_uncounted(error: "ValidationError") -> int:
    """Return the number of wrong fields to add for an error about an object: one per field not allowed, else one."""
    instance: Any = error.instance
    if error.validator != "additionalProperties" or not isinstance(error.schema, dict):
        return 1
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    return max(1, len([name for name in instance if name not in known and not _matches(name, patterns)]))


def _matches(name: str, patterns: Any) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _problem_line(error: "ValidationError") -> str:
    message = error.message
    message = message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 + 1 :]}"
    return f"{error.json_path}: {message}"
