import json
import re
from functools import lru_cache
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from evaluators.score import Score
from evaluators.text import pick

_FENCE = re.compile(r"\s*(`{3,})(?:json)?[ \t]*\n(.*)\n[ \t]*\1\s*", re.DOTALL | re.IGNORECASE)
_MOST_DIGITS = 4000  # Python reads no whole number that is much longer


def json_valid(
    outputs: dict[str, Any],
    *,
    key: str | None = None,
    schema: dict[str, Any] | bool | None = None,
    fenced: bool = False,
) -> Score:
    """Whether the answer is JSON, and with `schema` whether that JSON is of the schema; the comment says why not.

    Always applies. NaN and Infinity are not JSON; a name that comes twice is. A text in a Markdown fence is valid only
    with `fenced`, and only if nothing stands around the fence. An answer that is a structure already is JSON, and null
    is no answer. It cannot see whether what the JSON says is right, and checks no `format` of a schema.
    """
    value = pick(outputs, key)
    if value is None:
        return Score(value=False, comment="no answer")
    if isinstance(value, str):
        try:
            value = _read(value, fenced)
        except ValueError as error:
            return Score(value=False, comment=f"not JSON: {error}")
    problem = None if schema is None else _problem(value, schema)
    return Score(value=problem is None, comment=problem)


def _read(text: str, fenced: bool) -> Any:
    fence = _FENCE.fullmatch(text) if fenced else None
    try:
        return json.loads(fence[2] if fence else text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _problem(value: Any, schema: dict[str, Any] | bool) -> str | None:
    """How a value breaks the schema: the first problem, in the part of the value that it is about."""
    try:
        error = best_match(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value))
    except Unresolvable as unresolved:
        raise ValueError(f"schema: {unresolved}") from unresolved
    if error is None:
        return None
    says = error.message if len(error.message) <= 200 else f"{error.message[:100]} … {error.message[-99:]}"
    return f"not of the schema: {error.json_path}: {says}"


@lru_cache(maxsize=64)
def _validator(schema_text: str) -> Validator:
    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"schema: {error.json_path}: {error.message}") from error
    return kind(schema, registry=Registry())  # a registry of our own, so that no $ref is fetched from the network
