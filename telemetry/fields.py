"""The fields of a stored observation under the names that every convention shares: specs/attribute_aliases.py.

The views in SQL find the same (store/attribute_macros.py).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from evalflows.specs.attribute_aliases import FIELDS, LONG, NOT_CAPTURED, OWN_METADATA, TYPES, Alias, OfResource, Within
from evalflows.store.records import Json
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions.openai_messages import parsed

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fields:
    """The attributes of one observation, parsed."""

    row: ObservationRow
    short: Object
    contents: Object
    resource: Object

    @classmethod
    def of(cls, row: ObservationRow) -> "Fields":
        return cls(row, from_text(row.attributes) or {}, from_text(row.contents) or {}, from_text(row.resource) or {})

    @property
    def attributes(self) -> Object:
        """All attributes, as they came."""
        return self.short | self.contents

    def value(self, field: str) -> Any:
        """Return the first value that a field has under any name; None if there is none."""
        for place, group in groupby(FIELDS[field].get(self.row.source, ()), key=type):
            aliases = list(group)
            columns = (self.short, self.contents) if field in LONG else (self.short,)
            for column in columns if place is str else (self.short,):
                for alias in aliases:
                    found = column.get(alias) if isinstance(alias, str) else self._elsewhere(alias)
                    if found is not None and not (found == NOT_CAPTURED and field in LONG):
                        return found
        return None

    def _elsewhere(self, alias: Alias) -> Any:
        if isinstance(alias, OfResource):
            return self.resource.get(alias.attribute)
        assert isinstance(alias, Within)
        found = parsed(self.short.get(alias.attribute, self.contents.get(alias.attribute)))
        for key in alias.keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def text(self, field: str) -> str | None:
        found = self.value(field)
        return found if found is None or isinstance(found, str) else to_text(found)

    def whole_number(self, field: str) -> int | None:
        number = self.number(field)
        return None if number is None else round(number)

    def number(self, field: str) -> float | None:
        try:
            number = float(found) if (found := self.value(field)) is not None else None
        except (TypeError, ValueError):
            return None
        return number if number is not None and math.isfinite(number) else None

    def tags(self) -> list[str]:
        """Return the tags, from a list, from JSON text of one, or from text with commas between them."""
        text = self.text("tags")
        if text is None:
            return []
        try:
            found = json.loads(text)
        except ValueError:
            return [tag.strip() for tag in text.split(",")]
        if not isinstance(found, list):
            return [text]
        return [tag if isinstance(tag, str) else to_text(tag) for tag in found if tag is not None]

    def type(self) -> str:
        if self.row.kind == "log":
            return "event"
        return TYPES.get((self.text("type") or "").lower(), "span")

    def metadata(self) -> Object:
        """Return all attributes as they came, and the application's own metadata under its plain names."""
        attributes = self.attributes
        own: Object = {}
        for name in OWN_METADATA.get(self.row.source, ()):
            if name.endswith("."):
                below = {key.removeprefix(name): value for key, value in attributes.items() if key.startswith(name)}
                own |= {key: _plain(value) for key, value in below.items()}
            elif isinstance(found := parsed(attributes.get(name)), dict):
                own |= found.get("metadata") or {} if name == "extra" else found
        return attributes | own


def from_text(text: Json | None) -> Any:
    return None if text is None else orjson.loads(text)


def to_text(value: Any) -> str:
    """Return a value as JSON text, in the form that DuckDB gives it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return the value of JSON text, which some packages make of every value, including text."""
    try:
        return orjson.loads(value) if isinstance(value, str) and value[:1] in ('"', "{", "[") else value
    except orjson.JSONDecodeError:
        return value
