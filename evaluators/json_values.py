"""JSON in answers: read from a text and checked against a schema."""

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from evalflows.specs.json_schema import schema_errors

if TYPE_CHECKING:
    from jsonschema import ValidationError

_FENCE = re.compile(r"\s*(`{3,})(?:json)?[ \t]*\n(.*)\n[ \t]*\1\s*", re.DOTALL | re.IGNORECASE)
_MOST_DIGITS = 4000  # Python does not parse integers that are much longer


def read_json(text: str, fenced: bool = False) -> Any:
    """Parse a strict JSON text, with `fenced` also inside one Markdown fence. Raise ValueError if it is not JSON."""
    fence = _FENCE.fullmatch(text) if fenced else None
    try:
        return json.loads(fence[2] if fence else text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def value_errors(value: Any, schema: dict[str, Any] | bool) -> "list[ValidationError]":
    """Return all violations of a schema by a value, in the alphabetical order of the schema's fields.

    Raise ValueError for an unusable schema, as `schema_errors` does.
    """
    return schema_errors(value, json.dumps(schema, sort_keys=True))


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
