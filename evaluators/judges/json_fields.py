"""Check a JSON value against its schema, field by field."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import ValidationError

from evalflows.evaluators.json_values import schema_errors

Place = tuple[str | int, ...]
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

    Raise ValueError for an invalid schema, as `schema_errors` does.
    """
    errors = schema_errors(value, schema)
    places = {*_places(schema, value, ())}
    wrong: set[Place] = set()
    uncounted = 0
    for error in errors:
        hit = _hit(error, places)
        wrong |= hit
        uncounted += 0 if hit else _count(error)
    problems = [_says(error) for error in errors]
    return Checked(fields=len(places) + uncounted, wrong=len(wrong) + uncounted, problems=problems)


def _places(schema: Any, value: Any, at: Place) -> Iterator[Place]:
    """Yield the fields that are required or present. A missing object, or a non-object, lacks its required fields."""
    described, required = _fields(schema)
    present = value if isinstance(value, dict) else {}
    counted = [name for name in {**described, **dict.fromkeys(required)} if name in present or name in required]
    if not counted:
        yield at
    for name in counted:
        yield from _places(described.get(name, True), present.get(name), (*at, name))


def _fields(schema: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that a schema describes, and those that it requires."""
    if not isinstance(schema, dict):
        return {}, []
    required = schema.get("required")
    return schema.get("properties") or {}, required if isinstance(required, list) else []


def _hit(error: ValidationError, places: set[Place]) -> set[Place]:
    """Return the fields that an error is about; empty for an error about a whole object or an uncounted field."""
    at: Place = tuple(error.absolute_path)
    missing = _missing(error)
    if missing is not None:
        at = (*at, missing)
    below = {place for place in places if _within(place, at)}
    if below and (missing is not None or error.validator == "type" or below == {at}):
        return below
    return set() if below else {place for place in places if _within(at, place)}


def _missing(error: ValidationError) -> str | None:
    """Return the name of a missing required field, or None. jsonschema gives it in the message only."""
    names: Any = error.validator_value if error.validator == "required" else []
    listed = names if isinstance(names, list) else []
    return next((name for name in listed if error.message.startswith(f"{name!r} is a required")), None)


def _within(place: Place, outer: Place) -> bool:
    return place[: len(outer)] == outer


def _count(error: ValidationError) -> int:
    """Return how many uncounted fields an error about an object makes wrong: each field not allowed, or else one."""
    instance: Any = error.instance
    if error.validator != "additionalProperties" or not isinstance(error.schema, dict):
        return 1
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    return max(1, len([name for name in instance if name not in known and not _matches(name, patterns)]))


def _matches(name: str, patterns: Any) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _says(error: ValidationError) -> str:
    says = error.message
    says = says if len(says) <= _LONGEST else f"{says[: _LONGEST // 2]} … {says[-_LONGEST // 2 + 1 :]}"
    return f"{error.json_path}: {says}"
