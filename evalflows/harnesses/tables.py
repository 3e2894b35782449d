"""Results as tables: rows with an id, and scores in columns (wide) or a row each (long)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalflows.harnesses.found import Format, Found, NoResultsError, first, flattened, number, rows_in
from evalflows.specs.errors import InputError, short
from evalflows.specs.values import is_blank
from evalflows.store.file_formats import document_rows

IDS = ("id", "example_id", "sample_id", "item_id", "case_id", "test_id", "question_id", "instance_id", "doc_id", "key")
INPUTS = ("inputs", "input", "question", "user_input", "query", "prompt", "instruction", "messages")
REFERENCES = ("reference_outputs", "reference", "expected_output", "expected", "target", "targets", "ground_truth")
OUTPUTS = ("outputs", "output", "actual_output", "response", "answer", "prediction", "completion")
REPETITIONS = ("repetition", "epoch", "repeat", "trial", "attempt")
SYSTEMS = ("system", "model", "provider", "experiment")
ERRORS = ("error", "error_message")
SCORES = ("scores",)
METRICS, VALUES = ("metric", "metric_name"), ("value", "score")
"""Columns of the long form."""

_OF_ROWS = {*IDS, *INPUTS, *REFERENCES, *OUTPUTS, *REPETITIONS, *SYSTEMS, *ERRORS, *SCORES, "metadata"}
_OF_ONE_SCORE = {*_OF_ROWS, *METRICS, *VALUES}
_NO_METRIC = re.compile(r"(.+[_.])?(ids?|index|idx|at|hash|seed|split|cluster|group|timestamp|line|row)")
_SCORE = re.compile(r"(.+[_./ ])?(scores?|metrics?)([_./ ].+)?", re.IGNORECASE)
"""Columns that are scores by their names: a text in one is an error."""


def table_rows(content: Any, source: str = "") -> list[Mapping[str, Any]]:
    """Return the rows of a table: of lines, of a list, or of a JSON object that holds them. None if it is no table."""
    rows = [*document_rows(content, source)] if isinstance(content, Mapping) else content
    return rows_in(rows) if isinstance(rows, list) else []


def read_table(content: Any, source: str) -> Iterator[Found]:
    """Yield the answers of a table. Raise InputError if it has no id, no scores, or a text in a column of scores."""
    rows = table_rows(content, source)
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    if not {*IDS, *INPUTS}.intersection(columns):
        raise NoResultsError(f"{source}: got columns {short(', '.join(columns))}, wanted an id: {', '.join(IDS)}")
    is_long = not {*METRICS}.isdisjoint(columns) and not {*VALUES}.isdisjoint(columns)
    metrics = [] if is_long else _metrics(rows, columns)
    if not is_long and not metrics and not {*SCORES}.intersection(columns):
        raise NoResultsError(
            f"{source}: got columns {short(', '.join(columns))}, wanted scores, as numbers or booleans"
        )
    for index, row in enumerate(rows, start=1):
        scores = {name: row.get(name) for name in metrics}
        if is_long:
            scores = {str(first(row, METRICS)): first(row, VALUES)}
        elif isinstance(listed := row.get("scores"), Mapping):
            scores |= flattened(listed)
        metadata = row.get("metadata")
        others = {name: value for name, value in row.items() if name not in (_OF_ONE_SCORE if is_long else _OF_ROWS)}
        yield Found(
            id=first(row, IDS),
            place=f": row {index}",
            system=str(first(row, SYSTEMS) or ""),
            repetition=first(row, REPETITIONS),
            inputs=first(row, INPUTS),
            reference=first(row, REFERENCES),
            output=first(row, OUTPUTS),
            fields={**(metadata if isinstance(metadata, Mapping) else {}), **others},
            scores=scores,
            error=first(row, ERRORS),
        )


def _metrics(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Return the columns of scores: those named so, and all of numbers, true and false, unless their name is known."""
    are_texts = all(value is None or isinstance(value, str) for row in rows for value in row.values())  # of CSV
    return [
        name
        for name in columns
        if name not in _OF_ROWS
        and (_SCORE.fullmatch(name) or not _NO_METRIC.fullmatch(name.lower()))
        and (_SCORE.fullmatch(name) or _is_numeric([row.get(name) for row in rows], are_texts))
    ]


def _is_numeric(values: Sequence[Any], are_texts: bool) -> bool:
    present = [value for value in values if not is_blank(value)]
    try:
        return bool(present) and all(
            (are_texts or not isinstance(value, str)) and number(value, "") is not None for value in present
        )
    except InputError:
        return False


TABLE = Format(
    name="table",
    title="table",
    mark="rows (CSV, JSON lines, JSON, Parquet) with an id, and scores in columns, or as metric and value",
    recognises=lambda content: bool(table_rows(content)),
    read=read_table,
    twice="in parts",
)
