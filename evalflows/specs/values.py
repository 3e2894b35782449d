"""The one rule by which a value of any source becomes a value as JSON has it: of files, functions, DataFrames, lists of
rows, and of what targets return."""

import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import isawaitable
from math import isinf
from pathlib import PurePath
from typing import Any
from uuid import UUID

from evalflows.specs.errors import InputError, short
from evalflows.specs.escaping import json_text

_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that `stored` leaves as they are."""
_TEXT = frozenset({str})

WANTED = "wanted text, a number, a list or a mapping"

DEEPEST = 500
"""How deep JSON may nest: all readers follow it so far, on every Python, and PostgreSQL."""
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_WHOLE = re.compile(r"^(-?\d+)\.0$")


def is_deep(text: str) -> bool:
    """Return whether JSON nests deeper than DEEPEST."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > DEEPEST:
            return True
    return False


def stored(value: Any, where: str) -> Any:
    """Return a value as JSON has it.

    NaN, NaT and NA, which numpy and pandas use for missing values, are null. Dates, times and UUIDs become text,
    durations seconds, Decimals numbers, enum members their values, tuples and sets lists (of sets sorted), arrays of
    numpy lists, dataclasses and pydantic models mappings. Keys of mappings become text.

    Raise InputError, in one line that begins with `where` and the path to the value, for anything else: infinity,
    bytes, a generator, an object, a structure that contains itself.
    """
    if type(value) in _PLAIN:
        return value
    try:
        return _stored(value, where)
    except RecursionError:
        raise InputError(f"{where}: nested too deeply, or contains itself") from None


def stored_row(row: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return a row whose values are as JSON has them. Raise InputError, which names the column, as `stored` does."""
    if type(row) is dict and _has_names(row) and all(map(_is_plain, row.values())):
        return row
    return {name: stored(value, f"{where}: {name}") for name, value in _by_text(row, where).items()}


def _is_plain(value: Any) -> bool:
    """Return whether a value stays as it is, without looking into mappings and lists within it: most fields do."""
    kind = type(value)
    return kind in _PLAIN or (kind is dict and _has_names(value) and _PLAIN.issuperset(map(type, value.values())))


def _has_names(mapping: dict[Any, Any]) -> bool:
    return _TEXT.issuperset(map(type, mapping))


def is_blank(value: Any) -> bool:
    """Return whether a value is missing: null, or a text of nothing but blanks."""
    return value is None or (isinstance(value, str) and not value.strip())


def words(text: str) -> str:
    """Return a reason without blanks around it. Raise ValueError for one without a letter or digit: it says nothing."""
    if not any(map(str.isalnum, text)):
        raise ValueError(f"got {text!r}, wanted a reason in words")
    return text.strip()


def identifier(value: Any, where: str) -> str | None:
    """Return an id as text, without blanks around it; None for a missing one. 1.0, as pandas makes of 1, is "1", also
    as the text that it writes to a CSV file.

    Raise InputError unless it is a text or a number.
    """
    if is_blank(value):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{where}: got {type(value).__name__}, wanted a text or a number")
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    return _WHOLE.sub(r"\1", text) if text.endswith(".0") else text


def _stored(value: Any, where: str) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return stored(value.value, where)
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return _number(value, where)
        case Decimal():
            if not value.is_finite():
                return _number(float(value), where)
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return None if value != value else value.isoformat()  # NaT is missing too
        case timedelta():
            return value.total_seconds()
        case UUID() | PurePath():
            return str(value)
        case Mapping():
            return {name: _inner(item, where, name) for name, item in _by_text(value, where).items()}
        case list() | tuple():
            return [_inner(item, where, index) for index, item in enumerate(value)]
        case Set():
            return sorted((_inner(item, where, "a member") for item in value), key=json_text)
    return _of_library(value, where)


def _inner(value: Any, where: str, name: object) -> Any:
    return value if type(value) in _PLAIN else _stored(value, f"{where}.{name}")


def _number(value: float, where: str) -> float | None:
    if isinf(value):
        raise InputError(f"{where}: got {float(value)}, wanted a finite number or null")
    return None if value != value else float(value)


def _by_text(mapping: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return a mapping with its keys as text. Raise InputError if two become the same."""
    named = {str(_stored(name, where)) if isinstance(name, Enum) else str(name): item for name, item in mapping.items()}
    if len(named) < len(mapping):
        raise InputError(f"{where}: got two keys that are the same as text, among {short([*mapping])}")
    return named


def _of_library(value: Any, where: str) -> Any:
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "numpy" and hasattr(value, "dtype"):
        if value.dtype.kind in "mM":  # tolist() turns nanoseconds into integers
            value = value.astype(f"{value.dtype.kind}8[us]")
        if kind is not type(simple := value.tolist()):
            return stored(simple, where)
    if library == "pandas" and value is sys.modules["pandas"].NA:
        return None
    if not isinstance(value, type) and callable(dump := getattr(value, "model_dump", None)):
        return stored(dump(mode="json"), where)
    if not isinstance(value, type) and is_dataclass(value):
        return {each.name: _inner(getattr(value, each.name), where, each.name) for each in fields(value)}
    if isinstance(value, Iterator | AsyncIterator) or isawaitable(value):
        raise InputError(f"{where}: got {kind.__name__}, wanted its values, such as a list of them")
    raise InputError(f"{where}: got {kind.__name__}, {WANTED}")
