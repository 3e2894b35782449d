"""JSON in answers: read from a text and checked against a schema."""

import json
import re
from functools import lru_cache
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

_FENCE = re.compile(r"\s*(`{3,})(?:json)?[ \t]*\n(.*)\n[ \t]*\1\s*", re.DOTALL | re.IGNORECASE)
_MOST_DIGITS = 4000  # Python does not parse integers that are much longer


def read_json(text: str, fenced: bool = False) -> Any:
    """Parse a strict JSON text, with `fenced` also inside one Markdown fence. Raise ValueError if it is not JSON."""
    fence = _FENCE.fullmatch(text) if fenced else None
    try:
        return json.loads(fence[2] if fence else text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def schema_errors(value: Any, schema: dict[str, Any] | bool) -> list[ValidationError]:
    """Return all violations of a schema by a value.

    Raise ValueError for an invalid schema, an unresolvable reference or an invalid pattern. Older drafts, and schemas
    reached only through a `$ref`, are not checked for these until they are used.
    """
    try:
        return list(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value))
    except Unresolvable as unresolved:
        raise ValueError(f"schema: {unresolved}") from unresolved
    except re.error as error:
        raise ValueError(f"schema: the pattern {error.pattern!r}: {error}") from error


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


@lru_cache(maxsize=64)
def _validator(schema_text: str) -> Validator:
    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"schema: {error.json_path}: {error.message}") from error
    return kind(schema, registry=Registry())  # an empty registry, so that no $ref is fetched from the network
