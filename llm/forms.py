"""Asking for an answer of a given JSON schema in one of three forms, and reading it. Pure functions, no calls."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from llm.marks import Marks
from specs.connection import AnswerForm
from specs.errors import CallError, short

Schema = dict[str, Any]

_LONGEST = 200  # characters of an error


def asked(request: dict[str, Any], schema: Schema, form: AnswerForm) -> dict[str, Any]:
    """The body of a chat completion (model, messages, parameters) with what the form adds; the argument stays as it is.

    Raises CallError (bad_request) for what is no schema, for one that the form has no room for (a tool takes an object,
    a text an object of plain fields), and for a tool_call where the request has tools of its own.
    """
    _validator(_text_of(schema))
    if form == "json_schema":
        wanted = {"name": _name(schema), "schema": schema}
        return request | {"response_format": {"type": "json_schema", "json_schema": wanted}}
    if form == "tool_call":
        return request | _tool(request, schema)
    return request | {"messages": _told(request["messages"], _marks(_text_of(schema)).instruction())}


def read(message: Mapping[str, Any], schema: Schema, form: AnswerForm, finish_reason: str | None) -> Any:
    """The answer in a chat completion's message, as JSON that is of the schema.

    Raises CallError: truncated where the answer stopped at the token limit and cannot be read, else bad_answer. A text
    that stopped there never can: its own marks would have come last, so those it has may be quoted.
    """
    try:
        answer = _read(message, schema, form, finish_reason)
    except (ValueError, RecursionError) as error:
        if finish_reason == "length":
            says = "the answer was cut off at the token limit, and cannot be read"
            raise CallError("truncated", says) from error
        says = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallError("bad_answer", _line(says)) from error
    if problem := _problem(answer, schema):
        raise CallError("bad_answer", _line(f"not of the schema: {problem}"))
    return answer


def _read(message: Mapping[str, Any], schema: Schema, form: AnswerForm, finish_reason: str | None) -> Any:
    if form == "tool_call":
        return _json(_arguments(message, _name(schema)))
    content = message.get("content")
    if not isinstance(content, str):
        raise ValueError(f"wanted text, got {'nothing' if content is None else type(content).__name__}")
    if form == "json_schema":
        return _json(_unfenced(content.strip()))
    if finish_reason == "length":
        raise ValueError("cut off")
    return _marks(_text_of(schema)).read(content)


def _tool(request: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    if given := [name for name in ("tools", "tool_choice") if request.get(name)]:
        raise CallError("bad_request", f"answer_form tool_call: got {given[0]}, wanted none beside a schema")
    if schema.get("type") != "object":
        got = short(schema.get("type"))
        raise CallError("bad_request", f"answer_form tool_call: got a schema of type {got}, wanted 'object'")
    name = _name(schema)
    says = str(schema.get("description", "Give the answer."))
    tool = {"type": "function", "function": {"name": name, "description": says, "parameters": schema}}
    return {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": name}}}


def _name(schema: Schema) -> str:
    """The schema's title, in the letters that the name of a tool, or of a schema, may have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", "answer")))[:64] or "answer"


def _arguments(message: Mapping[str, Any], name: str) -> str:
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        if function.get("name") == name and isinstance(function.get("arguments"), str):
            return str(function["arguments"])
    raise ValueError(f"wanted a call of the tool {name!r}")


def _unfenced(text: str) -> str:
    """What stands in a Markdown fence that is the whole text. JSON within prose is not looked for: it may be quoted."""
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    inside = text[3:-3]
    return inside[4:] if inside[:4].lower() == "json" else inside


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except ValueError as error:
        raise ValueError(f"wanted JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else _refuse(digits)


def _told(messages: Sequence[Mapping[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """The messages, with an instruction at the end of the last one of the user's."""
    told = [dict(message) for message in messages]
    last = next((message for message in reversed(told) if message.get("role") == "user"), None)
    if last is None:
        return [*told, {"role": "user", "content": instruction}]
    content = last.get("content") or ""
    parts = isinstance(content, list)
    last["content"] = [*content, {"type": "text", "text": instruction}] if parts else f"{content}\n\n{instruction}"
    return told


@lru_cache(maxsize=64)
def _marks(schema_text: str) -> Marks:
    try:
        return Marks.of(json.loads(schema_text))
    except ValueError as error:
        raise CallError("bad_request", _line(f"answer_form text: {error}")) from error


def _problem(answer: Any, schema: Schema) -> str | None:
    try:
        error = best_match(_validator(_text_of(schema)).iter_errors(answer))
    except Unresolvable as unresolved:
        raise CallError("bad_request", _line(f"schema: {unresolved}")) from unresolved
    except RecursionError:
        return "nested too deeply"
    return None if error is None else f"{error.json_path}: {error.message}"


def _text_of(schema: Schema) -> str:
    """What its validator is kept under. The order of fields is part of it: it says what the model writes first."""
    return json.dumps(schema)


@lru_cache(maxsize=64)
def _validator(schema_text: str) -> Validator:
    """Made once a schema, since that takes longer than the check. Raises CallError (bad_request) for what is none."""
    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise CallError("bad_request", _line(f"schema: {error.json_path}: {error.message}")) from error
    return kind(schema, registry=Registry())  # a registry of our own, so that no $ref is fetched from the network


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
