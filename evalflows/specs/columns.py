"""Mapping the columns of a file to the fields of examples, recorded answers and traces, and conversations as lists of
OpenAI messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evalflows.specs.errors import InputError, short
from evalflows.specs.files import unique_object
from evalflows.specs.frozen import dataclass
from evalflows.specs.model import SpecModel
from evalflows.specs.protocols import Message

SYSTEM = ("system", "developer")
"""Roles of messages that set up the conversation."""
ANSWERING = ("assistant", "tool", "function")
"""Roles of messages within an assistant turn: its own, and those of the tools that it calls."""
ROLES = (*SYSTEM, "user", *ANSWERING)


def _by_field(value: object) -> object:
    """Expand `question` and `[question, context]`, short for columns that keep their names."""
    if isinstance(value, str):
        return {value: value}
    try:
        return {name: name for name in value} if isinstance(value, list | tuple) else value
    except TypeError:  # a list of lists: refused as it is
        return value


Columns = Annotated[dict[str, str], BeforeValidator(_by_field)]
"""Field: column. A column may be a path into nested objects, such as `data.question`."""


class ExampleColumns(SpecModel):
    """The columns of an example, for rows of any schema. Columns that are not named become metadata."""

    inputs: Columns = Field(
        min_length=1, description="The inputs as field: column, or one column, or a list of columns"
    )
    reference_outputs: Columns = Field({}, description="The reference outputs, in the same form")
    metadata: Columns | None = Field(None, description="The metadata, in the same form; default: all other columns")
    id: str | None = Field(None, description="The column with the example's id; default: `id`, if present")
    split: str | None = Field(None, description="The column with its split; default: `split`, if present")
    cluster: str | None = Field(
        None, description="The column with its cluster (what was sampled together); default: `cluster`, if present"
    )
    as_json: list[str] = Field([], description="Columns with JSON texts, which are parsed")

    @classmethod
    def named(cls, inputs: str, reference: str | None, identity: str | None) -> "ExampleColumns":
        """Return the columns that short texts name: `question,context`, and `answer=best` for answer of column best.

        Raise InputError if no input is named.
        """
        if not (fields := _named(inputs)):
            raise InputError(f"inputs: got {short(inputs)}, wanted a column such as question or question=text")
        return cls(inputs=fields, reference_outputs=_named(reference or ""), id=identity)


def _named(text: str) -> dict[str, str]:
    """Return field: column. `answer=best` is the field `answer` of the column `best`; `best` alone keeps its name."""
    pairs = [name.partition("=") for name in text.split(",") if name.strip()]
    return {field.strip(): (column or field).strip() for field, _, column in pairs}


class AnswerColumns(SpecModel):
    """The columns of a recorded answer, and those that identify its example, for rows of any schema."""

    outputs: Columns = Field(
        min_length=1, description="The outputs as field: column, or one column, or a list of columns"
    )
    id: str | None = Field(None, description="The column with the example's id; default: `id`, if present")
    inputs: Columns = Field({}, description="The inputs that identify the example if there is no id")
    repetition: str | None = Field(
        None, description="The column with the repetition that is answered, from 0; default: `repetition`, if present"
    )
    as_json: list[str] = Field([], description="Columns with JSON texts, which are parsed")


def example_row(row: Mapping[str, Any], columns: ExampleColumns) -> dict[str, Any]:
    """Convert a row of any schema to {"inputs", "reference_outputs", …}.

    Raise InputError if a column is missing, or one of `as_json` is not JSON.
    """
    row = _parsed(row, columns.as_json)
    paths = {name: getattr(columns, name) or name for name in ("id", "split", "cluster")}
    fixed = {name: at_path(row, path) for name, path in paths.items() if getattr(columns, name) or path in row}
    used = {*paths.values(), *columns.inputs.values(), *columns.reference_outputs.values()}
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
    """Convert a row of any schema to {"id" or "inputs", "repetition", "outputs", …}.

    Raise InputError if a column is missing, or one of `as_json` is not JSON.
    """
    row = _parsed(row, columns.as_json)
    answer: dict[str, Any] = {"outputs": _outputs(row, columns)}
    if columns.inputs:
        answer["inputs"] = _pick(row, columns.inputs)
    for name in ("id", "repetition"):
        if getattr(columns, name) or name in row:
            answer[name] = at_path(row, getattr(columns, name) or name)
    if all(value is None for value in answer["outputs"].values()):
        answer["outputs"] = None
    return answer | {name: row[name] for name in ("error", "latency_s") if row.get(name) is not None}


def _outputs(row: Mapping[str, Any], columns: AnswerColumns) -> dict[str, Any]:
    """Return the outputs; empty if the row has an error instead."""
    try:
        return _pick(row, columns.outputs)
    except InputError:
        if not row.get("error"):
            raise
        return {}


def _parsed(row: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return a row in which the texts of these columns are what they say as JSON."""
    parsed = dict(row)
    for name in names:
        value = at_path(row, name)
        if isinstance(value, str) and value.strip():
            try:
                parsed[name] = json.loads(value, object_pairs_hook=unique_object)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{name}: not JSON: {error}") from error
    return parsed


def _pick(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    picked = {field: at_path(row, path) for field, path in columns.items()}
    if isinstance(text := picked.get("messages"), str):
        picked["messages"] = _conversation_in(text)
    return picked


def _conversation_in(text: str) -> Any:
    """Return the conversation that a cell holds as JSON, else the text."""
    try:
        return checked_messages(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def at_path(row: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, or at a path of names joined by dots. Raise InputError if there is none."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise InputError(f"no column {path!r}, got {', '.join(map(str, row)) or 'an empty row'}")
        value = value[name]
    return value


def value_of(example: Mapping[str, Any], path: str, what: str) -> Any:
    """Return the value at a path of an example's `inputs` or `metadata`. Raise InputError if there is none."""
    root = path.partition(".")[0]
    try:
        return at_path({root: example[root]} if root in ("inputs", "metadata") else {}, path)
    except InputError:
        got = f"{root} has {', '.join(map(str, example[root])) or 'nothing'}" if root in ("inputs", "metadata") else ""
        raise InputError(
            f"{what}: no {path!r}, {got or 'wanted a path such as inputs.name or metadata.name'}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assistant turn: consecutive messages of the assistant and of its tools."""

    number: int  # from 1
    begins: int  # index of its first message in the conversation
    ends: int  # index after its last message


def checked_messages(value: Any) -> list[Message]:
    """Return the value as a list of OpenAI messages, which may be empty. Raise ValueError, in one line, if invalid."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"messages: got {type(value).__name__}, wanted a list of {{role, content}}")
    for index, message in enumerate(value, start=1):
        if problem := _problem(message):
            raise ValueError(f"messages: {index}: {problem}")
    return [dict(message) for message in value]


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Return the assistant's turns, in order. Tool messages without an assistant message are not a turn."""
    turns: list[Turn] = []
    begins = 0
    for index in range(len(messages) + 1):
        if index < len(messages) and messages[index]["role"] in ANSWERING:
            continue
        if any(message["role"] == "assistant" for message in messages[begins:index]):
            turns.append(Turn(number=len(turns) + 1, begins=begins, ends=index))
        begins = index + 1
    return turns


def _problem(message: Any) -> str | None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return f"got {short(message)}, wanted {{role, content}}"
    if message["role"] not in ROLES:
        return f"got the role {short(message['role'])}, wanted one of {', '.join(ROLES)}"
    content, calls = message.get("content"), message.get("tool_calls")
    parts = isinstance(content, list) and all(isinstance(part, Mapping | str) for part in content)
    if content is not None and not isinstance(content, str) and not parts:
        return f"got the content {short(content)}, wanted a text or a list of parts"
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, Mapping) for call in calls)):
        return f"got the tool_calls {short(calls)}, wanted a list of calls"
    return None


class TraceColumns(SpecModel):
    """The columns of an observation. A column may be a path into nested objects, such as `data.question`.

    A field that is not named here comes from the column of its own name, if there is one; columns not named anywhere
    become metadata.
    """

    input: str | None = Field(None, description="The application's input")
    output: str | None = Field(None, description="Its answer")
    started_at: str | None = Field(None, description="When it began: ISO 8601, or a number since 1970")
    ended_at: str | None = Field(None, description="When it ended")
    latency_s: str | None = Field(None, description="How long it took, instead of `ended_at`")
    trace_id: str | None = Field(None, description="Its trace; default: an id made from the row")
    span_id: str | None = Field(None, description="Its id within the trace; default: an id made from the row")
    parent_id: str | None = Field(None, description="The id of its parent observation")
    name: str | None = Field(None, description="Its name; default: `row`")
    type: str | None = Field(None, description="generation, tool, agent, …; default: generation with a model or tokens")
    status: str | None = Field(None, description="ok or error")
    error: str | None = Field(None, description="The error's text; its presence means an error")
    session_id: str | None = Field(None, description="The session or conversation")
    user_id: str | None = Field(None, description="The user")
    tags: str | None = Field(None, description="A list, or text with commas between the tags")
    model: str | None = Field(None, description="The model")
    provider: str | None = Field(None, description="The model's provider")
    tokens_in: str | None = Field(None, description="Tokens of the request")
    tokens_out: str | None = Field(None, description="Tokens of the answer")
    cost_usd: str | None = Field(None, description="Cost in USD")
    version: str | None = Field(None, description="The application's version")
    environment: str | None = Field(None, description="Such as production")
    service: str | None = Field(None, description="The application's name")
    metadata: str | None = Field(None, description="An object; columns not named elsewhere are added to it")
