"""Request an answer that follows a JSON schema, in one of three forms, and read it. Pure functions, no calls."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from evalflows.llm.tagged_output import TaggedOutput
from evalflows.specs.connection import AnswerForm
from evalflows.specs.errors import CallError, short
from evalflows.specs.json_schema import schema_errors, schema_validator
from evalflows.specs.unique_keys import unique_object

Schema = dict[str, Any]

_MAX_ERROR_CHARS = 200


def with_response_format(request: dict[str, Any], schema: Schema, form: AnswerForm) -> dict[str, Any]:
    """Return a copy of a chat completion's body (model, messages, parameters) that requests an answer of the schema.

    Raises CallError (bad_request) for an invalid schema, for one that the form does not support (a tool call needs an
    object, tagged text a flat object), and for a tool call if the request has its own tools.
    """
    _check_schema(schema)
    if form == "json_schema":
        named_schema = {"name": _name(schema), "schema": schema}
        return request | {"response_format": {"type": "json_schema", "json_schema": named_schema}}
    if form == "tool_call":
        return request | _tool(request, schema)
    return request | {"messages": _with_instruction(request["messages"], _tagged(_cache_key(schema)).instruction())}


def read_answer(message: Mapping[str, Any], schema: Schema, form: AnswerForm, finish_reason: str | None) -> Any:
    """Return the answer in a chat completion's message as JSON, validated against the schema.

    Raises CallError: `truncated` if the answer stopped at the token limit and cannot be read, else `bad_answer`. A
    truncated tagged text is never read: its own tags would have come last, so any it contains may be quotations.
    """
    try:
        answer = _read(message, schema, form, finish_reason)
    except (ValueError, RecursionError) as error:
        if finish_reason == "length":
            raise CallError("truncated", "the answer was cut off at the token limit and cannot be read") from error
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallError("bad_answer", _line(problem)) from error
    if violation := _violation(answer, schema):
        raise CallError("bad_answer", _line(f"the answer does not match the schema: {violation}"))
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
    return _tagged(_cache_key(schema)).read(content)


def _tool(request: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    if own := [name for name in ("tools", "tool_choice") if request.get(name)]:
        raise CallError("bad_request", f"answer_form tool_call: got {own[0]}, wanted none together with a schema")
    if schema.get("type") != "object":
        got = short(schema.get("type"))
        raise CallError("bad_request", f"answer_form tool_call: got a schema of type {got}, wanted 'object'")
    name = _name(schema)
    description = str(schema.get("description", "Give the answer."))
    tool = {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
    return {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": name}}}


def _name(schema: Schema) -> str:
    """Return the schema's title, reduced to the characters allowed in the names of tools and schemas."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", "answer")))[:64] or "answer"


def _arguments(message: Mapping[str, Any], name: str) -> str:
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        if function.get("name") == name and isinstance(function.get("arguments"), str):
            return str(function["arguments"])
    raise ValueError(f"wanted a call of the tool {name!r}")


def _unfenced(text: str) -> str:
    """Remove a Markdown fence around the whole text. JSON inside prose is not searched for: it may be a quotation."""
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    inside = text[3:-3]
    return inside[4:] if inside[:4].lower() == "json" else inside


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=unique_object)
    except ValueError as error:
        raise ValueError(f"wanted JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else _refuse(digits)


def _with_instruction(messages: Sequence[Mapping[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """Return the messages with an instruction appended to the last user message."""
    copies = [dict(message) for message in messages]
    last = next((message for message in reversed(copies) if message.get("role") == "user"), None)
    if last is None:
        return [*copies, {"role": "user", "content": instruction}]
    content = last.get("content") or ""
    parts = isinstance(content, list)
    last["content"] = [*content, {"type": "text", "text": instruction}] if parts else f"{content}\n\n{instruction}"
    return copies


@lru_cache(maxsize=64)
def _tagged(schema_text: str) -> TaggedOutput:
    try:
        return TaggedOutput.from_schema(json.loads(schema_text))
    except ValueError as error:
        raise CallError("bad_request", _line(f"answer_form text: {error}")) from error


def _check_schema(schema: Schema) -> None:
    try:
        schema_validator(_cache_key(schema))
    except ValueError as error:
        raise CallError("bad_request", _line(str(error))) from error


def _violation(answer: Any, schema: Schema) -> str | None:
    from jsonschema.exceptions import best_match  # late: it takes a tenth of a second to import

    try:
        error = best_match(iter(schema_errors(answer, _cache_key(schema))))
    except ValueError as unusable:
        raise CallError("bad_request", _line(str(unusable))) from unusable
    except RecursionError:
        return "nested too deeply"
    return None if error is None else f"{error.json_path}: {error.message}"


def _cache_key(schema: Schema) -> str:
    """Return the schema as text. The order of fields is kept, since it decides what the model writes first."""
    return json.dumps(schema)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_ERROR_CHARS else line[: _MAX_ERROR_CHARS - 1] + "…"
