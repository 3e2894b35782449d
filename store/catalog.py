"""Asking the store with SQL: a DuckDB in memory with a view for every table (staging) and every question (marts)."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from specs.errors import InputError
from store.parquet import Store

SQL = Path(__file__).parent / "sql"


def connect(root: str | os.PathLike[str] | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB with every view over the store's files, as they are when a query runs. It cannot change the store.

    `root` as in `Store`. Raises InputError for a store that cannot be made or read.
    """
    store = Store(root)
    connection = store.connect()
    _create_views(connection)
    return connection


def ask(store: Store, *queries: tuple[str, Sequence[object]]) -> list[list[tuple[Any, ...]]]:
    """The rows of each query over the views, all of them as the store is at one moment. A query is SQL and its values.

    Unlike a bare connection, it misses no experiment that is sealed meanwhile.
    """

    def read() -> list[list[tuple[Any, ...]]]:
        with _viewing(store) as catalog:
            return [catalog.execute(sql, list(values)).fetchall() for sql, values in queries]

    return store.steady(read)


def ask_arrow(store: Store, sql: str, values: Sequence[object]) -> pa.Table:
    """The rows of one query in the same way, as an Arrow table."""

    def read() -> pa.Table:
        with _viewing(store) as catalog:
            return catalog.sql(sql, params=list(values)).to_arrow_table()

    return store.steady(read)


@contextmanager
def _viewing(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """The store's own DuckDB, with the views."""
    with store.cursor() as catalog:
        if not catalog.execute("select 1 from duckdb_views() where view_name = ?", [view_files()[-1].stem]).fetchall():
            _create_views(catalog)
        yield catalog


def _create_views(connection: duckdb.DuckDBPyConnection) -> None:
    for path in view_files():
        connection.execute(f"create or replace view {path.stem} as {path.read_text(encoding='utf-8')}")


def view_files() -> list[Path]:
    """The files of the views, in the order in which they build on each other."""
    return [*sorted((SQL / "staging").glob("*.sql")), *sorted((SQL / "marts").glob("*.sql"))]


def grain(path: Path) -> tuple[str, ...]:
    """The columns that are unique in a view, read from its first line: `-- one row per a, b: …`."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = re.fullmatch(r"-- one row per ([a-z_]+(?:, [a-z_]+)*)(?:: .*)?", first)
    if not match:
        raise ValueError(f"{path.name}: got {first!r}, wanted '-- one row per column, column'")
    return tuple(match[1].split(", "))


def select(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """Run one query that only reads. Raises InputError for anything else, and for SQL that DuckDB refuses."""
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise InputError(f"sql: {_one_line(error)}") from error
    if len(statements) != 1 or not _only_reads(connection, statements[0]):
        raise InputError(f"sql: got {_kinds(statements)}, wanted one query (select, from, with, describe, explain)")
    try:
        return connection.sql(query).materialize()
    except duckdb.Error as error:
        raise InputError(f"sql: {_one_line(error)}") from error


def _only_reads(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> bool:
    """Whether it is a query; to explain and analyze one runs it, so what is explained must be one too."""
    if statement.type == duckdb.StatementType.EXPLAIN:
        bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", statement.query, flags=re.DOTALL)
        explained = re.sub(r"^\s*explain\s*(analyze\b)?\s*(\([^)]*\))?", "", bare, flags=re.IGNORECASE)
        (statement,) = connection.extract_statements(explained)
    return bool(statement.type == duckdb.StatementType.SELECT)


def _kinds(statements: list[duckdb.Statement]) -> str:
    return ", ".join(statement.type.name for statement in statements) or "nothing"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
