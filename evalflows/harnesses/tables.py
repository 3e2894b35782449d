"""Results as tables: rows with an id, and scores in columns (wide) or a row each (long)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalflows.harnesses.assembling import COLUMNS, NoResultsError, Row, first, rows_in
from evalflows.specs.errors import short
from evalflows.specs.values import is_blank
from evalflows.store.file_formats import document_rows

METRICS, VALUES = ("metric", "metric_name"), ("value", "score")  # columns of the long form
_KNOWN = {"scores", "metadata", *(name for names in COLUMNS.values() for name in names)}
_NO_METRIC = re.compile(r"(.+[_.])?(ids?|index|idx|at|hash|seed|split|cluster|group|timestamp|line|row)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|true|false|nan", re.IGNORECASE)
_SCORE = re.compile(r"(.+[_./ ])?(scores?|metrics?)([_./ ].+)?", re.IGNORECASE)
"""Columns that are scores by their names: a text in one is an error."""


def read_table(content: Any, source: str) -> Iterator[Row]:
    """Yield rows with their scores, also those that a JSON object holds. Raise NoResultsError without ids or scores."""
    rows = rows_in([*document_rows(content, source)] if isinstance(content, Mapping) else content)
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    got = f"{source}: got columns {short(', '.join(columns))}"
    if not {*COLUMNS["id"], *COLUMNS["inputs"]}.intersection(columns):
        raise NoResultsError(f"{got}, wanted an id: {', '.join(COLUMNS['id'])}")
    is_long = not {*METRICS}.isdisjoint(columns) and not {*VALUES}.isdisjoint(columns)
    metrics = [] if is_long else _metrics(rows, columns)
    if not is_long and not metrics and "scores" not in columns:
        raise NoResultsError(f"{got}, wanted scores, as numbers or true and false")
    known = {*_KNOWN, *METRICS, *VALUES} if is_long else _KNOWN
    for row in rows:
        listed, metadata = ({} if row.get(name) is None else row[name] for name in ("scores", "metadata"))
        scores = dict(listed) if isinstance(listed, Mapping) else {"scores": listed}
        scores |= {name: row.get(name) for name in metrics}
        scores |= {str(first(row, METRICS)): first(row, VALUES)} if is_long else {}
        fields = dict(metadata) if isinstance(metadata, Mapping) else {"metadata": metadata}
        fields |= {name: value for name, value in row.items() if name not in known}
        yield {**row, "scores": scores, "metadata": fields, "unfinished": None}


def _metrics(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the columns of scores: those named so, and others of numbers, true and false."""
    kinds = float | int if any(isinstance(value, float | int) for row in rows for value in row.values()) else str
    candidates = [name for name in columns if name not in _KNOWN and not _NO_METRIC.fullmatch(name.lower())]
    return [name for name in candidates if _SCORE.fullmatch(name) or _are_numbers(name, rows, kinds)]


def _are_numbers(name: str, rows: Sequence[Row], kinds: Any) -> bool:
    """Return whether a column has numbers, true and false; in CSV, where nothing else is a number, they are texts."""
    values = [row[name] for row in rows if not is_blank(row.get(name))]
    return bool(values) and all(isinstance(value, kinds) and _NUMBER.fullmatch(str(value).strip()) for value in values)
