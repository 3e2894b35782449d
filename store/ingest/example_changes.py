"""What changed in an example, field by field."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evalflows.store.records import ExampleRow

JSON_FIELDS = ("inputs", "reference_outputs", "metadata", "attachments")
PLAIN_FIELDS = ("split", "cluster")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A value at a path of an example, such as `reference_outputs.answer`; None if it is missing on one side."""

    path: str
    old: Any
    new: Any


def field_changes(old: ExampleRow, new: ExampleRow) -> Iterator[FieldChange]:
    """Yield the values that differ between two versions of an example."""
    for name in JSON_FIELDS:
        before, after = (json.loads(getattr(row, name) or "null") for row in (old, new))
        yield from _changes(name, before, after)
    for name in PLAIN_FIELDS:
        yield from _changes(name, getattr(old, name), getattr(new, name))


def _changes(path: str, old: Any, new: Any) -> Iterator[FieldChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _changes(f"{path}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield FieldChange(path, old, new)
