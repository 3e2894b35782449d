import json
from collections.abc import Mapping
from typing import Any

from evalflows.evaluators.direction import declares, share
from evalflows.evaluators.json_values import read_json
from evalflows.evaluators.judges.context import PathRoots, value_at
from evalflows.evaluators.judges.json_fields import checked
from evalflows.evaluators.score import Score
from evalflows.evaluators.text import pick
from evalflows.specs.errors import short

_MOST_NAMED = 3


@declares(share)
def schema_adherence(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    schema: Mapping[str, Any] | bool | str = "metadata.schema",
    fenced: bool = False,
    key: str | None = None,
) -> Score | None:
    """The share of an answer's fields that fit a JSON schema, 0 to 1; 1 exactly if the answer is valid.

    This is a rule and calls no model. `json_valid` says whether the whole answer is valid; this says how much of it is.
    The fields are those that the schema requires, and those that it describes and the answer has; for a nested object
    its fields count instead. A list, and a value described by a `$ref` or a choice, is one field. Each field that is
    not allowed counts as one more wrong field, and so does each other violated rule of an object. The comment has the
    first problems, the metadata `valid` and the counts `fields` and `wrong`.

    `schema` is a schema, or the dotted path to the example's own in its metadata or reference_outputs (also as JSON
    text); None if an example lacks it. A text that is not JSON scores 0, and so does a missing answer; `fenced` and
    `key` are those of `json_valid`. Raise ValueError for an invalid schema. It cannot see whether the content of the
    fields is right, and does not check `format`.
    """
    resolved = _schema(schema, {"metadata": metadata, "reference_outputs": reference_outputs})
    if resolved is None:
        return None
    value = pick(outputs, key)
    if value is None:
        return Score(value=0.0, comment="no answer", metadata={"valid": False})
    if isinstance(value, str):
        try:
            value = read_json(value, fenced)
        except ValueError as error:
            return Score(value=0.0, comment=f"not JSON: {error}", metadata={"valid": False})
    result = checked(value, resolved)
    more = [f"and {len(result.problems) - _MOST_NAMED} more"] if len(result.problems) > _MOST_NAMED else []
    return Score(
        value=result.share,
        comment="; ".join([*result.problems[:_MOST_NAMED], *more]) or None,
        metadata={"valid": not result.problems, "fields": result.fields, "wrong": result.wrong},
    )


def _schema(setting: Any, roots: PathRoots) -> dict[str, Any] | bool | None:
    """Return the schema itself, or the one at a path."""
    schema = value_at("schema", setting, roots) if isinstance(setting, str) else setting
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"schema: got {short(schema)}, wanted a JSON schema: {error}") from error
    if isinstance(schema, Mapping):
        return dict(schema)
    if schema is None or isinstance(schema, bool):
        return schema
    raise ValueError(f"schema: got {short(schema)}, wanted a JSON schema")
