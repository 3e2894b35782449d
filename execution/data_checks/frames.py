"""Examples as frames for Great Expectations, which needs whole columns in memory."""

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from evalflows.store.records import ExampleRow, from_json, to_json

TEXTS = ("inputs", "reference_outputs", "metadata")
"""The columns that hold JSON."""

UNIQUE = ("example_id", "inputs")
"""The columns whose values should differ."""

FILLED = "filled_inputs"
"""A column of ours: how many fields of the inputs are filled."""

LONG, SHOWN = 2000, 200
"""Characters from which a text is checked by a stand-in, and how many of them that shows."""

ROWS_AT_ONCE = 10_000
"""Examples in one frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What one reading of the examples tells of their columns."""

    columns: Sequence[str]  # with each field of the texts that were parsed
    filled: frozenset[str]  # those of TEXTS that an example has
    hashes: dict[str, "np.ndarray[Any, np.dtype[np.int64]]"]  # of each value of the columns in UNIQUE


def overview(examples: Iterable[ExampleRow], parsed: Sequence[str] = TEXTS) -> Overview:
    """Read the examples once, with the fields of those of TEXTS that are `parsed`."""
    columns = dict.fromkeys(("example_id", "position", "split", "cluster", *TEXTS))
    filled, hashes = set[str](), {name: array("q") for name in UNIQUE}
    fields = {name: set[str]() for name in parsed}
    for example in examples:
        for name in UNIQUE:
            hashes[name].append(hash(getattr(example, name)))
        for name in TEXTS:
            if (text := getattr(example, name)) is not None:
                filled.add(name)
                if name in fields and not fields[name].issuperset(found := _object(text)):
                    columns |= dict.fromkeys(f"{name}.{field}" for field in found)
                    fields[name].update(found)
    arrays = {name: np.frombuffer(values, np.int64) for name, values in hashes.items()}
    return Overview(columns=[*columns, FILLED], filled=frozenset(filled), hashes=arrays)


def blocks(examples: Sequence[ExampleRow], columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield columns of the examples in frames of ROWS_AT_ONCE rows. One example at a time is whole in memory."""
    rows = iter(examples)
    for _ in range(0, len(examples), ROWS_AT_ONCE):
        yield as_frame(islice(rows, ROWS_AT_ONCE), columns)


def unique_column(examples: Iterable[ExampleRow], name: str, view: Overview) -> pd.DataFrame:
    """Return a column whose values are as unique as those of the examples: where a text occurs once, its position."""
    values, counts = np.unique(view.hashes[name], return_counts=True)
    repeated = frozenset(values[counts > 1].tolist())
    if not repeated:
        return pd.DataFrame({name: np.arange(len(view.hashes[name]))})
    texts = (getattr(example, name) for example in examples)
    column = [_stand_in(name, text) if hash(text) in repeated else number for number, text in enumerate(texts)]
    return pd.DataFrame({name: pd.Series(column, dtype=object)})


def as_frame(examples: Iterable[ExampleRow], columns: Sequence[str], named: str = "") -> pd.DataFrame:
    """Return columns of the examples, one row each. Blank text is null.

    Long texts have stand-ins, so that a dataset may be larger than memory, except in columns that `named` names.
    """
    parents = {column.partition(".")[0] for column in columns if "." in column}
    names = {name: f"{name}." for name in TEXTS if name in parents or (name == "inputs" and FILLED in columns)}
    rows = []
    for example in examples:
        row: dict[str, Any] = {name: getattr(example, name) for name in _OF_EXAMPLES if name in columns}
        for name, prefix in names.items():
            fields = _fields(getattr(example, name))
            row |= {prefix + field: value for field, value in fields.items()}
            if name == "inputs":
                row[FILLED] = len(fields) - sum(value is None for value in fields.values())
        rows.append([_shown(name, row.get(name), named) for name in columns])
    return pd.DataFrame(rows, columns=list(columns), dtype=object).where(lambda frame: frame.notna(), None)


_OF_EXAMPLES = ("example_id", "position", "split", "cluster", *TEXTS)


def is_named(column: str, text: str) -> bool:
    """Whether a text names a column."""
    return _pattern(column).search(text) is not None


@cache
def _pattern(column: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(column)}(?![\w.])")


def _shown(column: str, value: Any, named: str) -> Any:
    if not isinstance(value, str) or len(value) < LONG or is_named(column, named):
        return value
    return _stand_in(column, value)


def _stand_in(column: str, value: Any) -> Any:
    """Return a short text for a long one: equal for equal texts, and JSON for JSON where the column holds that."""
    if not isinstance(value, str) or len(value) < LONG:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()
    short = f"{value[:SHOWN]}… ({len(value):,} characters, SHA-256 {digest})"
    return to_json(short) if column in TEXTS and _is_json(value) else short


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _fields(text: str | None) -> dict[str, Any]:
    """Return the fields of a JSON object; empty if the text is not one, which has its own check."""
    return {name: _plain(field) for name, field in _object(text).items()}


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    return to_json(value) if isinstance(value, list | dict) else value
