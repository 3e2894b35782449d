import json
from collections.abc import Mapping
from typing import Any

from evaluators.direction import declares, share
from evaluators.json_values import read_json
from evaluators.judges.context import Sides, at
from evaluators.judges.json_fields import checked
from evaluators.score import Score
from evaluators.text import pick
from specs.errors import short

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
    """The share of an answer's fields that are right by a JSON schema, 0 to 1; 1 just where the answer is valid.

    A rule: no model is asked. `json_valid` says whether all is well, this says how much. The fields are those that the
    schema requires, and those that it describes and the answer has; of an object within an object its fields count. A
    list, and what the schema describes by a `$ref` or a choice, is one field. Each field that the schema does not allow
    counts as one more that is wrong, and so does each other rule of an object that is broken. The comment has the
    first problems, the metadata `valid`, `fields` and `wrong` (both counts).

    `schema` is one, or the dotted path of each example's own in its metadata or reference_outputs (also as JSON text);
    None where an example lacks it. A text that is no JSON is 0, and so is no answer; `fenced` and `key` are those of
    `json_valid`. Raises ValueError for a schema that is none. It cannot see whether what the fields say is right, and
    checks no `format`.
    """
    wanted = _schema(schema, {"metadata": metadata, "reference_outputs": reference_outputs})
    if wanted is None:
        return None
    value = pick(outputs, key)
    if value is None:
        return Score(value=0.0, comment="no answer", metadata={"valid": False})
    if isinstance(value, str):
        try:
            value = read_json(value, fenced)
        except ValueError as error:
            return Score(value=0.0, comment=f"not JSON: {error}", metadata={"valid": False})
    found = checked(value, wanted)
    more = [f"and {len(found.problems) - _MOST_NAMED} more"] if len(found.problems) > _MOST_NAMED else []
    return Score(
        value=found.share,
        comment="; ".join([*found.problems[:_MOST_NAMED], *more]) or None,
        metadata={"valid": not found.problems, "fields": found.fields, "wrong": found.wrong},
    )


def _schema(given: Any, sides: Sides) -> dict[str, Any] | bool | None:
    """The schema that is given, or stands where a path leads."""
    found = at("schema", given, sides) if isinstance(given, str) else given
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError as error:
            raise ValueError(f"schema: got {short(found)}, wanted a JSON schema: {error}") from error
    if isinstance(found, Mapping):
        return dict(found)
    if found is None or isinstance(found, bool):
        return found
    raise ValueError(f"schema: got {short(found)}, wanted a JSON schema")
