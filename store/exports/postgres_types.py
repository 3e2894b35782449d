"""PostgreSQL's types for DuckDB's, and values that it can hold: no text has NUL bytes, and JSON has limits."""

import json
import re
from collections.abc import Callable
from typing import Any

from evalflows.store.layout import identifier

NUL = "\u2400"
"""What is shown for a NUL character, which no text in PostgreSQL can hold: the symbol ␀."""

_TYPES = {
    "VARCHAR": "text",
    "JSON": "jsonb",
    "BOOLEAN": "boolean",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "UUID": "uuid",
    "BLOB": "bytea",
}
_SUMS = ("HUGEINT", "UHUGEINT")  # cast to bigint when they are staged
_LISTS = ("VARCHAR", "BOOLEAN", "DOUBLE", "INTEGER", "BIGINT", "TIMESTAMP WITH TIME ZONE")

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_RARE = re.compile(r"NaN|Infinity|[eE][+-]?\d{4}|\d{1000}")
_DEEP = 500
_MAX_DIGITS = 10_000


def type_of(kind: str) -> str:
    """Return PostgreSQL's type for a DuckDB type; text for one that it does not have."""
    base = kind.removesuffix("[]")
    if kind in _SUMS:
        return "bigint"
    if base != kind and base in _LISTS:
        return f"{_TYPES[base]}[]"
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        return "jsonb"
    return f"numeric{kind.removeprefix('DECIMAL')}" if kind.startswith("DECIMAL") else _TYPES.get(kind, "text")


def expression_of(name: str, kind: str) -> str:
    """Return the DuckDB SQL of a staged column whose values fit the PostgreSQL type."""
    column, wanted = identifier(name), type_of(kind)
    if wanted == "jsonb" and kind != "JSON":
        return f"to_json({column})"
    return f"{column}::varchar" if wanted == "text" and kind != "VARCHAR" else column


def converter_of(kind: str) -> Callable[[Any], Any] | None:
    """Return the function that makes values of a type fit PostgreSQL; None if all do."""
    converters: dict[str, Callable[[Any], Any]] = {
        "text": fitting_text,
        "text[]": _fitting_texts,
        "jsonb": fitting_json,
    }
    return converters.get(type_of(kind))


def fitting_text(text: str) -> str:
    """Return a text in which NUL characters are shown as a symbol."""
    return text.replace("\x00", NUL)


def fitting_json(text: str) -> str:
    """Return JSON that PostgreSQL reads. JSON with NaN, with a huge number or nested too deep becomes a JSON string."""
    text = _ESCAPED_NUL.sub(rf"\g<1>{NUL}", text)
    is_plain = text.count("[") + text.count("{") < _DEEP and not _RARE.search(text)
    return text if is_plain or _is_readable(text) else json.dumps(text, ensure_ascii=False)


def _fitting_texts(texts: list[str | None]) -> list[str | None]:
    return [None if text is None else fitting_text(text) for text in texts]


def _is_readable(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError):
        return False
    return True


def _number(text: str) -> None:
    _, _, exponent = text.lower().partition("e")
    if len(text) > _MAX_DIGITS or (exponent and abs(int(exponent[:10])) > _MAX_DIGITS):
        raise ValueError(text[:20])


def _refuse(text: str) -> None:
    raise ValueError(text)
