"""Rows of the store of which tests set only the relevant fields."""

from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from evalflows.store.records import Json
from evalflows.store.schemas import TABLES


def make_row(table: str, **values: Any) -> Any:
    """Return a row of a table with these fields, and defaults or placeholders for all others."""
    return TABLES[table].record(**{name: _placeholder(name, hint) for name, hint in _needed(table).items()} | values)


@cache
def _needed(table: str) -> dict[str, Any]:
    """The types of the fields without a default."""
    record = TABLES[table].record
    hints = get_type_hints(record, include_extras=True)
    needed = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    return {name: hints[name] for name in needed}


def _placeholder(name: str, hint: Any) -> object:
    if hint == Json:
        return "{}"
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is list:
        return []
    if hint is str:
        return f"a {name}"
    return datetime(2026, 1, 1, tzinfo=UTC) if hint is datetime else hint()
