"""The tools that a chat target offers to its model: those of the spec, or the example's own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.specs.columns import at_path
from evalflows.specs.errors import InputError, short
from evalflows.specs.json_schema import JSON_TYPES
from evalflows.specs.target import ChatTarget

MAX_NAME = 64
"""Most characters of a function's name that OpenAI accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Tools in OpenAI's format, and the names that they have in the spec or the example, by the names sent."""

    sent: Sequence[Mapping[str, Any]]
    own_names: Mapping[str, str]

    def with_own_name(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's call with the tool's own name."""
        function = call.get("function")
        if not isinstance(function, Mapping) or function.get("name") not in self.own_names:
            return dict(call)
        return {**call, "function": {**function, "name": self.own_names[function["name"]]}}


def as_tools(given: Any) -> Tools | None:
    """Return a list of tools as they are sent; None without any.

    Functions (name, description, parameters) are put into OpenAI's format. Their names get `_` for characters that
    OpenAI refuses, such as dots, and types that Python names, such as `dict`, are named as in JSON schema. Tools of
    other types are sent unchanged. Raise InputError for what is not a list of tools.
    """
    if not given:
        return None
    if not isinstance(given, list | tuple):
        raise InputError(f"tools: got {short(given)}, wanted a list of tools")
    names = [_function(tool)["name"] for tool in given if _is_function(tool)]
    own_names = {_name_sent(name): name for name in names}
    if len(own_names) < len(names):
        got = ", ".join(names)
        raise InputError(f"tools: got {got}, wanted names that differ in letters, digits, _ and -")
    return Tools(sent=[_sent(tool) if _is_function(tool) else tool for tool in given], own_names=own_names)


def tools_at(path: str, available: Mapping[str, Any]) -> Tools | None:
    """Return the tools of an example with these `inputs` and `metadata`. Raise InputError as `as_tools` does, and
    without the field."""
    try:
        given = at_path(available, path)
    except InputError:
        root = path.partition(".")[0]
        got = ", ".join(available[root]) or "nothing"
        raise InputError(f"tools: no {path!r}, {root} has {got}") from None
    return as_tools(given)


def check_tools(spec: ChatTarget, available: Mapping[str, Any], where: str) -> None:
    """Raise InputError if `tools` is a path at which an example, with its `inputs` and `metadata`, has no tools."""
    if not isinstance(spec.tools, str):
        return
    try:
        tools_at(spec.tools, available)
    except InputError as error:
        raise InputError(f"target {spec.name!r}: {where}: {error}") from error


def _is_function(tool: Any) -> bool:
    return not isinstance(tool, Mapping) or "function" in tool or tool.get("type", "function") == "function"


def _function(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError(f"tools: got {short(tool)}, wanted a function with a name")
    return function


def _name_sent(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]


def _sent(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in _function(tool).items() if name != "type"}
    function["name"] = _name_sent(function["name"])
    if "parameters" in function:
        function["parameters"] = _schema(function["parameters"])
    return {**(tool if "function" in tool else {"type": "function"}), "function": function}


def _schema(schema: Any) -> Any:
    """Return a schema with the types as JSON schema names them; `any` allows all, so it is left out."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _part(name, value) for name, value in schema.items() if (name, value) != ("type", "any")}


def _part(name: str, value: Any) -> Any:
    if name == "type" and isinstance(value, str):
        return JSON_TYPES.get(value, value)
    if name == "properties" and isinstance(value, Mapping):
        return {field: _schema(schema) for field, schema in value.items()}
    if name in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
        return [_schema(schema) for schema in value]
    return _schema(value) if name in ("items", "additionalProperties") else value
