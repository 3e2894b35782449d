from typing import Any

from jsonschema.exceptions import best_match

from evaluators.json_values import read_json, schema_errors
from evaluators.score import Score
from evaluators.text import pick


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
            value = read_json(value, fenced)
        except ValueError as error:
            return Score(value=False, comment=f"not JSON: {error}")
    problem = None if schema is None else _problem(value, schema)
    return Score(value=problem is None, comment=problem)


def _problem(value: Any, schema: dict[str, Any] | bool) -> str | None:
    """How a value breaks the schema: the first problem, in the part of the value that it is about."""
    error = best_match(iter(schema_errors(value, schema)))
    if error is None:
        return None
    says = error.message if len(error.message) <= 200 else f"{error.message[:100]} … {error.message[-99:]}"
    return f"not of the schema: {error.json_path}: {says}"
