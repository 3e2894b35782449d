"""The formats of exported traces, and how a file's own is recognised by its records."""

from collections.abc import Callable
from typing import Any, Literal, get_args

from evalflows.specs.errors import InputError, short
from evalflows.specs.trace_columns import TraceColumns
from evalflows.telemetry.exports import langfuse, langsmith
from evalflows.telemetry.exports.rows import Rows
from evalflows.telemetry.otlp_json import LOGS, OTHERS, SPANS, rows_of_fields
from evalflows.telemetry.parsed import Telemetry

Format = Literal["otlp", "langfuse", "langsmith", "rows"]
FORMATS: tuple[Format, ...] = get_args(Format)
Reader = Callable[[Any], Telemetry]


def reader_of(form: Format, columns: TraceColumns | None) -> Reader:
    """Return what makes rows of a record in a format. It raises InputError for a record in another."""
    match form:
        case "otlp":
            return rows_of_fields
        case "langfuse":
            return langfuse.telemetry_of
        case "langsmith":
            return langsmith.telemetry_of
    return Rows(columns or TraceColumns()).telemetry


def recognised(record: Any, columns: TraceColumns | None) -> Format:
    """Return the format of a record. With `columns`, it is a row. Raise InputError if it is none."""
    if columns is not None:
        return "rows"
    fields = record if isinstance(record, dict) else {}
    if any(name in fields for name in (SPANS, LOGS, *OTHERS)):
        return "otlp"
    if langsmith.is_langsmith(fields):
        return "langsmith"
    if langfuse.is_langfuse(fields):
        return "langfuse"
    if "started_at" in fields and ("input" in fields or "output" in fields):
        return "rows"
    got = short(", ".join(list(fields)[:8])) if fields else type(record).__name__
    raise InputError(f"its format is not recognised by {got}, wanted --format, or --columns for plain rows")
