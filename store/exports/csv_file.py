"""CSV files for spreadsheets and BI tools."""

from collections.abc import Mapping
from pathlib import Path

from evalflows.specs.safe_text import write_csv
from evalflows.store.exports.staged import staged_rows
from evalflows.store.layout import identifier


def write_csv_file(target: Path, staged: Path, columns: Mapping[str, str]) -> None:
    """Write a staged Parquet file, of columns with these DuckDB types, as CSV with a header.

    Texts that a spreadsheet may take for formulas get a leading apostrophe. Times are ISO 8601 in UTC, lists and
    structures JSON, null is an empty cell.
    """
    cells = {name: _cell(name, kind) for name, kind in columns.items()}
    with target.open("w", encoding="utf-8", newline="") as file:
        write_csv(file, [*columns], staged_rows(staged, cells))


def _cell(name: str, kind: str) -> str:
    column = identifier(name)
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"strftime({column} at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        return f"to_json({column})"
    return f"{column}::varchar" if kind == "BOOLEAN" else column
