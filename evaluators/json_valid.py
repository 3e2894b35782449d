from typing import Any

from evalflows.evaluators.json_values import read_json, value_errors
from evalflows.evaluators.score import Score
from evalflows.evaluators.text import pick


def json_valid(
    outputs: dict[str, Any],
    *,
    key: str | None = None,
    schema: dict[str, Any] | bool | None = None,
    fenced: bool = False,
) -> Score:
    """Whether the answer is JSON and, with `schema`, whether it fits the schema; the comment says why not.

    Always applies. NaN and Infinity are not JSON; duplicate names are. A text in a Markdown fence is valid only with
    `fenced`, and only if there is nothing around the fence. An answer that is already a structure is JSON; null is no
    answer. It cannot see whether the JSON's content is right, and does not check a schema's `format`.
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
    """Return the most relevant schema violation and its JSON path; None for a valid value."""
    from jsonschema.exceptions import best_match  # late: it takes a tenth of a second to import

    error = best_match(iter(value_errors(value, schema)))
    if error is None:
        return None
    says = error.message if len(error.message) <= 200 else f"{error.message[:100]} … {error.message[-99:]}"
    return f"does not fit the schema: {error.json_path}: {says}"
