"""Rows of a staged Parquet file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from evalflows.store.layout import identifier, quoted

BATCH = 1_000
"""Rows that are in memory at a time."""


def staged_rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a Parquet file, with a SQL expression for each column, BATCH at a time. Times are in UTC."""
    selected = ", ".join(f"{expression} as {identifier(name)}" for name, expression in columns.items())
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(f"select {selected} from read_parquet({quoted(str(path))})")
        while rows := connection.fetchmany(BATCH):
            yield from rows
