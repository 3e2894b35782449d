"""Which columns of a file are what."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from specs.errors import InputError


def _by_field(value: object) -> object:
    """`question` and `[question, context]` are short for columns that keep their names."""
    if isinstance(value, str):
        return {value: value}
    try:
        return {name: name for name in value} if isinstance(value, list | tuple) else value
    except TypeError:  # a list of lists: refused as it is
        return value


Columns = Annotated[dict[str, str], BeforeValidator(_by_field)]
"""Field: column. A column may be a path into nested objects, such as `data.question`."""


class ExampleColumns(BaseModel):
    """For rows of any schema: from which columns an example is made. What is not named becomes metadata."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: Columns = Field(min_length=1, description="The inputs, field: column; or a column, or a list of columns")
    reference_outputs: Columns = Field({}, description="The reference outputs, in the same way")
    metadata: Columns | None = Field(None, description="The metadata, in the same way; all other columns if left out")
    id: str | None = Field(None, description="The column of the example's id; `id` if there is one")
    split: str | None = Field(None, description="The column of its split; `split` if there is one")
    cluster: str | None = Field(None, description="The column of what it was sampled with; `cluster` if there is one")


class AnswerColumns(BaseModel):
    """For recorded answers of any schema: from which columns an answer is made, and its example found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outputs: Columns = Field(min_length=1, description="The outputs, field: column; or a column, or a list of columns")
    id: str | None = Field(None, description="The column of the example's id; `id` if there is one")
    inputs: Columns = Field({}, description="The inputs to find the example by, where there is no id")


def example_row(row: Mapping[str, Any], columns: ExampleColumns) -> dict[str, Any]:
    """A row of any schema as a row of {"inputs", "reference_outputs", …}. Raises InputError for a missing column."""
    given = {name: getattr(columns, name) or name for name in ("id", "split", "cluster")}
    fixed = {name: at_path(row, path) for name, path in given.items() if getattr(columns, name) or path in row}
    used = {*given.values(), *columns.inputs.values(), *columns.reference_outputs.values()}
    metadata = (
        {name: value for name, value in row.items() if name not in used}
        if columns.metadata is None
        else _pick(row, columns.metadata)
    )
    references = _pick(row, columns.reference_outputs)
    absent = all(value is None for value in references.values())
    return {
        "inputs": _pick(row, columns.inputs),
        "reference_outputs": None if absent else references,
        "metadata": metadata or None,
        **fixed,
    }


def answer_row(row: Mapping[str, Any], columns: AnswerColumns) -> dict[str, Any]:
    """A row of any schema as a row of {"id" or "inputs", "outputs", …}. Raises InputError for a missing column."""
    found: dict[str, Any] = {"outputs": _answer(row, columns)}
    if columns.inputs:
        found["inputs"] = _pick(row, columns.inputs)
    if columns.id or "id" in row:
        found["id"] = at_path(row, columns.id or "id")
    if all(value is None for value in found["outputs"].values()):
        found["outputs"] = None
    return found | {name: row[name] for name in ("error", "latency_s") if row.get(name) is not None}


def _answer(row: Mapping[str, Any], columns: AnswerColumns) -> dict[str, Any]:
    """The outputs; of a row that holds an error instead, none."""
    try:
        return _pick(row, columns.outputs)
    except InputError:
        if not row.get("error"):
            raise
        return {}


def _pick(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    return {field: at_path(row, path) for field, path in columns.items()}


def at_path(row: Mapping[str, Any], path: str) -> Any:
    """The value of a column, or at a path of names joined by dots."""
    if path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise InputError(f"no column {path!r}, got {', '.join(map(str, row)) or 'an empty row'}")
        value = value[part]
    return value
