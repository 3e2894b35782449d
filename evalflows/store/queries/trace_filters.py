"""Filters of traces as conditions in SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.specs.traces import Filter, TraceScope
from evalflows.store.layout import quoted

_FIELDS = {
    "name": "name",
    "tags": "tags",
    "userid": "user_id",
    "sessionid": "session_id",
    "traceid": "trace_id",
    "tracename": "trace_name",
    "version": "version",
    "release": "version",
    "environment": "environment",
    "timestamp": "started_at",
    "starttime": "started_at",
    "startedat": "started_at",
    "endtime": "ended_at",
    "latency": "latency_s",
    "latencys": "latency_s",
    "totalcost": "cost_usd",
    "costusd": "cost_usd",
    "inputtokens": "tokens_in",
    "outputtokens": "tokens_out",
    "type": "type",
    "model": "model",
    "providedmodelname": "model",
    "status": "status",
    "service": "service",
    "input": "input",
    "output": "output",
}
"""Names of columns in Langfuse's filters and ours, without case and underscores, and the column of the view."""

COLUMNS: Mapping[TraceScope, frozenset[str]] = {
    "traces": frozenset(_FIELDS.values()) - {"type", "trace_name", "model"} | {"models"},
    "observations": frozenset(_FIELDS.values()),
    "sessions": frozenset(
        {"session_id", "started_at", "ended_at", "user_id", "environment", "version", "tags", "cost_usd"}
    )
    | {"tokens_in", "tokens_out"},
}

_COMPARED = {"=": "=", "!=": "<>", "<>": "<>", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
_BOUNDS = {"fromtimestamp": ">=", "totimestamp": "<", "fromstarttime": ">=", "tostarttime": "<"}

_TEXTS: Mapping[str, Callable[[str, str], str]] = {
    "contains": lambda column, text: f"contains({column}, {text})",
    "does not contain": lambda column, text: f"not contains({column}, {text})",
    "starts with": lambda column, text: f"starts_with({column}, {text})",
    "ends with": lambda column, text: f"ends_with({column}, {text})",
}
_LISTS: Mapping[str, Callable[[str, str], str]] = {
    "any of": lambda column, values: f"list_has_any({column}, {values})",
    "none of": lambda column, values: f"not list_has_any({column}, {values})",
    "all of": lambda column, values: f"list_has_all({column}, {values})",
}
_OPERATORS = (*_COMPARED, *_TEXTS, *_LISTS, "is null", "is not null")


def condition(given: Filter | None, scope: TraceScope) -> str | None:
    """Return a filter as a condition in SQL on the columns of the scope's view; None without a filter.

    Raise InputError for JSON with an unknown column, operator or value. SQL is checked where it runs.
    """
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InputError(f"filter: got {short(given)}, wanted JSON or a condition in SQL: {error}") from error
    if not given:
        return None
    if isinstance(given, str):
        return f"(\n{given}\n)"
    if isinstance(given, Mapping):
        return " and ".join(_equals(name, value, scope) for name, value in given.items())
    return " and ".join(_one(entry, scope) for entry in given)


def _equals(name: str, value: Any, scope: TraceScope) -> str:
    """Return a field of the object form: equal, or for lists, all of them."""
    if bound := _BOUNDS.get(_key(name)):
        return f"started_at {bound} {_literal(value, name)}::timestamptz"
    if _key(name) == "metadata" and isinstance(value, Mapping):
        return " and ".join(f"{_metadata(str(key))} = {_literal(_text(inner), name)}" for key, inner in value.items())
    column = _column(name, scope)
    value = _cased(column, value)
    if column in ("tags", "models"):
        listed = value if isinstance(value, list) else [value]
        return f"list_has_all(coalesce({column}, []), {_list(listed, name)})"
    if isinstance(value, list):
        return f"list_contains({_list(value, name)}, {column})"
    return f"{column} is null" if value is None else f"{column} = {_literal(value, name)}"


def _one(entry: Any, scope: TraceScope) -> str:
    """Return one condition of the list form: {column, operator, value, type, key}."""
    if not isinstance(entry, Mapping) or not {"column", "operator"} <= entry.keys():
        raise InputError(f"filter: got {short(entry)}, wanted {{column, operator, value, type}}")
    name, operator, value = str(entry["column"]), str(entry["operator"]).lower(), entry.get("value")
    is_metadata = _key(name) == "metadata"
    column = _metadata(str(entry.get("key", ""))) if is_metadata else _column(name, scope)
    value = _cased(column, value)
    if operator in ("is null", "is not null"):
        return f"{column} {operator}"
    if operator in _TEXTS:
        return _TEXTS[operator](column, _literal(_text(value), name))
    if operator in _LISTS:
        listed = value if isinstance(value, list) else [value]
        found = column if column in ("tags", "models") else f"[{column}]"
        return _LISTS[operator](f"coalesce({found}, [])", _list(listed, name))
    if operator not in _COMPARED:
        raise InputError(f"filter: {name}: got the operator {operator!r}, wanted one of {', '.join(_OPERATORS)}")
    if column in ("tags", "models"):
        raise InputError(f"filter: {name}: got the operator {operator!r}, wanted one of {', '.join(_LISTS)}")
    kind = "::timestamptz" if column in ("started_at", "ended_at") else ""
    return f"{column} {_COMPARED[operator]} {_literal(_text(value) if is_metadata else value, name)}{kind}"


def _cased(column: str, value: Any) -> Any:
    """Return types in lower case, as the views have them; Langfuse's are in upper case."""
    if column != "type":
        return value
    if isinstance(value, list):
        return [_cased(column, item) for item in value]
    return value.lower() if isinstance(value, str) else value


def _column(name: str, scope: TraceScope) -> str:
    column = _FIELDS.get(_key(name), name if name in COLUMNS[scope] else "")
    column = "models" if column == "model" and scope == "traces" else column
    column = "name" if column == "trace_name" and scope == "traces" else column
    if column == "trace_id" or column in COLUMNS[scope]:
        return column
    known = ", ".join(sorted(COLUMNS[scope] | {"metadata"}))
    raise InputError(f"filter: got the column {name!r} for {scope}, wanted one of {known}")


def _metadata(key: str) -> str:
    """Return SQL for a field of the attributes, also as Langfuse's SDK calls it."""
    names = (key, f"langfuse.trace.metadata.{key}", f"langfuse.observation.metadata.{key}", f"metadata.{key}")
    paths = ", ".join(quoted('$."' + name.replace('"', "") + '"') for name in names)
    nested = quoted('$.metadata."' + key.replace('"', "") + '"')
    return f"list_any_value(json_extract_string(attributes, [{paths}, {nested}]))"


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _list(values: list[Any], name: str) -> str:
    return f"[{', '.join(_literal(value, name) for value in values)}]"


def _literal(value: Any, name: str) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    raise InputError(f"filter: {name}: got {short(value)}, wanted a text, a number, or a list of these")
