"""Results that platforms export: LangSmith, Langfuse, Braintrust."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from evalflows.harnesses.assembling import Row, at, first, has, rows_in

_LABELS = ("CATEGORICAL", "TEXT", "CORRECTION")  # types of Langfuse's scores that are no numbers


def read_langsmith(content: Any, source: str) -> Iterator[Row]:
    """Yield the rows of an experiment as a data frame, or its runs and their feedback, which may follow them."""
    rows, given = rows_in(content), defaultdict[str, dict[str, Any]](dict)
    for row in rows:
        if "key" in row and row.get("run_id"):
            given[str(row["run_id"])][row["key"]] = row.get("score")
    for row in rows:
        if has(content, "example_id execution_time"):
            parts = {name: _under(name, row) for name in ("inputs", "outputs", "reference")}
            yield {"id": row["example_id"], "error": row.get("error"), **parts, "scores": _under("feedback", row)}
        elif "run_type" in row and not row.get("parent_run_id") and not row.get("parent_run_ids"):
            stats = {key: at(each, "avg") for key, each in (row.get("feedback_stats") or {}).items()}
            yield {
                **row,
                "id": row.get("reference_example_id"),
                "system": row.get("session_id"),
                "scores": {**stats, **given[str(row["id"])]},
                "metadata": at(row, "extra", "metadata"),
            }


def _under(name: str, row: Row) -> dict[str, Any]:
    return {column.partition(".")[2]: value for column, value in row.items() if column.startswith(f"{name}.")}


def read_langfuse(content: Any, source: str) -> Iterator[Row]:
    """Yield traces with their scores, which the traces hold or which are records of their own."""
    rows, given = rows_in(at(content, "data") or content), defaultdict[str, dict[str, Any]](dict)
    for score in [*rows, *(each for row in rows for each in row.get("scores") or ())]:
        if "value" in score and first(score, ("dataType", "data_type")) not in _LABELS:
            given[str(first(score, ("traceId", "trace_id")))][score["name"]] = score["value"]
    for row in rows:
        if "value" not in row:
            yield {**row, "id": at(row, "metadata", "dataset_item_id"), "scores": given[row["id"]]}


def read_braintrust(content: Any, source: str) -> Iterator[Row]:
    """Yield the rows of an experiment with the scores of the spans below them. Ids of rows differ by experiment."""
    rows, given = rows_in(content), defaultdict[str, dict[str, Any]](dict)
    for row in rows:
        given[row["root_span_id"]] |= row.get("scores") or {}
    for row in rows:
        if not row.get("span_parents"):
            system = first(row, ("experiment_name", "experiment_id"))
            yield {**row, "id": at(row, "origin", "id"), "system": system, "scores": given[row["root_span_id"]]}
