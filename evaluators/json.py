"""Rules about JSON in answers: whether it is valid, and how it follows a schema, field by field."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.paths import PathRoots, pick, value_at
from evalflows.evaluators.score import Score
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass
from evalflows.specs.json_schemas import schema_errors

if TYPE_CHECKING:
    from jsonschema import ValidationError

_FENCE = re.compile(r"\s*(`{3,})(?:json)?[ \t]*\n(.*)\n[ \t]*\1\s*", re.DOTALL | re.IGNORECASE)
_MOST_DIGITS = 4000  # Python does not parse integers that are much longer

FieldPath = tuple[str | int, ...]
"""The path of a field: names and list indices."""

_LONGEST = 200

_MOST_NAMED = 3


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

    Raise ValueError for an invalid schema, as `value_errors` does.
    """
    errors = value_errors(value, schema)
    paths = {*_field_paths(schema, value, ())}
    wrong: set[FieldPath] = set()
    uncounted = 0
    for error in errors:
        affected = _affected_fields(error, paths)
        wrong |= affected
        uncounted += 0 if affected else _count_uncounted(error)
    problems = [_problem_line(error) for error in errors]
    return Checked(fields=len(paths) + uncounted, wrong=len(wrong) + uncounted, problems=problems)


def _field_paths(schema: Any, value: Any, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the fields that are required or present. A missing object, or a non-object, lacks its required fields."""
    described, required = _fields(schema)
    present = value if isinstance(value, dict) else {}
    counted = [name for name in {**described, **dict.fromkeys(required)} if name in present or name in required]
    if not counted:
        yield path
    for name in counted:
        yield from _field_paths(described.get(name, True), present.get(name), (*path, name))


def _fields(schema: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that a schema describes, and those that it requires."""
    if not isinstance(schema, dict):
        return {}, []
    required = schema.get("required")
    return schema.get("properties") or {}, required if isinstance(required, list) else []


def _affected_fields(error: "ValidationError", paths: set[FieldPath]) -> set[FieldPath]:
    """Return the paths of the fields that an error concerns: none for a whole object or an uncounted field."""
    path_of_error: FieldPath = tuple(error.absolute_path)
    missing = _missing(error)
    if missing is not None:
        path_of_error = (*path_of_error, missing)
    below = {path for path in paths if _is_within(path, path_of_error)}
    if below and (missing is not None or error.validator == "type" or below == {path_of_error}):
        return below
    return set() if below else {path for path in paths if _is_within(path_of_error, path)}


def _missing(error: "ValidationError") -> str | None:
    """Return the name of a missing required field, or None. jsonschema gives it in the message only."""
    names: Any = error.validator_value if error.validator == "required" else []
    listed = names if isinstance(names, list) else []
    return next((name for name in listed if error.message.startswith(f"{name!r} is a required")), None)


def _is_within(path: FieldPath, outer: FieldPath) -> bool:
    return path[: len(outer)] == outer


def _count_uncounted(error: "ValidationError") -> int:
    """Return the number of wrong fields to add for an error about an object: one per field not allowed, else one."""
    instance: Any = error.instance
    if error.validator != "additionalProperties" or not isinstance(error.schema, dict):
        return 1
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    return max(1, len([name for name in instance if name not in known and not _matches(name, patterns)]))


def _matches(name: str, patterns: Any) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _problem_line(error: "ValidationError") -> str:
    message = error.message
    message = message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 + 1 :]}"
    return f"{error.json_path}: {message}"


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
