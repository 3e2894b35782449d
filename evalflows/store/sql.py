"""Querying the store with SQL: an in-memory DuckDB with a view per question (marts, in the schema `main`) and per table
(in `staging`, where queries find them by their names)."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from evalflows.specs.errors import InputError
from evalflows.store.layout import quoted
from evalflows.store.leases.lease import held_leases
from evalflows.store.parquet import Store
from evalflows.store.restricted import restrict, time_limit
from evalflows.store.statements import checked
from evalflows.store.verification import texts_in
from evalflows.store.views import (
    SQL,
    grain,
    is_mart,
    is_own,
    own_views,
    tables_of,
    view_files,
    view_statement,
    view_text,
    views_of,
)

__all__ = [
    "SQL",
    "ask",
    "ask_arrow",
    "connect",
    "grain",
    "is_mart",
    "is_own",
    "select",
    "select_from",
    "tables_of",
    "view_files",
    "view_text",
    "views_of",
]


def connect(root: str | os.PathLike[str] | None = None, *, restricted: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB with all views over the store's files, as of each query; which leases are held, as of now.

    Args:
        root: As in `Store`.
        restricted: For queries of others: read nothing but the store, load no extension, use half the memory at most.
            The settings are locked. Frames are found only if they are registered: `connection.register("name", frame)`.

    Raises InputError if the store cannot be created or read, or for a mart of the user's that cannot be created.
    """
    store = Store(root)
    if restricted:
        return _restricted(store)
    connection = store.connect()
    note_leases(store, connection)
    create_own_marts(connection)
    return connection


def _restricted(
    store: Store, memory_bytes: int | None = None, own: frozenset[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A restricted connection, with the user's own marts of these names; all by default.

    They come last: DuckDB opens the files that a new view reads.
    """
    connection = store.connect(writes=False)
    note_leases(store, connection)
    restrict(connection, memory_bytes)
    create_own_marts(connection, own)
    return connection


def select_from(
    store: Store, query: str, timeout_s: float | None = None, memory_bytes: int | None = None
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query over the views, as `select`, without the owners of damaged files.

    The connection is restricted to the store.
    """
    own = views_of(query) or None
    while True:
        connection, version = _restricted(store, memory_bytes, own), store.damage_version
        try:
            return select(connection, query, timeout_s)
        except InputError as error:
            if not _is_about_files(error.__cause__) or not store.mend(since=version):
                raise


def _is_about_files(error: BaseException | None) -> bool:
    about = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
    return isinstance(error, about) or type(error) is duckdb.Error  # the last is what Python's files raise


def ask(store: Store, *queries: tuple[str, Sequence[object]]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query (SQL and its values) over the views, from one consistent state of the store.

    Unlike a plain connection, this misses no experiment that is sealed meanwhile, and verifies the files of owners
    among the values before. Raise StorageError for a damaged one.
    """

    def read() -> list[list[tuple[Any, ...]]]:
        for sql, values in queries:
            store.verify(texts_in(values), tables_of(sql))
        with _viewing(store, *(sql for sql, _ in queries)) as catalog:
            return [catalog.execute(sql, list(values)).fetchall() for sql, values in queries]

    return store.steady(read)


def ask_arrow(store: Store, sql: str, values: Sequence[object]) -> pa.Table:
    """Return the rows of one query as an Arrow table, from one consistent state of the store, verified as in `ask`."""

    def read() -> pa.Table:
        store.verify(texts_in(values), tables_of(sql))
        with _viewing(store, sql) as catalog:
            return catalog.sql(sql, params=list(values)).to_arrow_table()

    return store.steady(read)


@contextmanager
def _viewing(store: Store, *queries: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """The store's own DuckDB, with those of the user's own marts that the queries read."""
    with store.cursor() as catalog:
        wanted = frozenset().union(*map(views_of, queries))
        with _creating:
            create_own_marts(catalog, wanted)
        if wanted & {"experiments", "comparison_sets"}:
            note_leases(store, catalog)
        yield catalog


_creating = threading.Lock()  # threads share the database, and DuckDB refuses to create a view twice at the same time


def note_leases(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    """Tell a connection which run groups and comparisons a process works on now."""
    names = ", ".join(map(quoted, held_leases(store)))
    connection.execute(f"set variable held_leases = [{names}]::varchar[]")


def create_own_marts(connection: duckdb.DuckDBPyConnection, names: frozenset[str] | None = None) -> None:
    """Create the user's own marts of these names; all by default. Raise InputError for one that cannot be created."""
    for path in own_views(names):
        try:
            statements = connection.extract_statements(path.read_text(encoding="utf-8"))
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InputError(f"{path}: got {_kinds(statements)}, wanted one query (select, from, with)")
            connection.execute(view_statement(path))
            columns = connection.execute(f"from main.{path.stem} limit 0").description or []
        except duckdb.Error as error:
            raise InputError(f"{path}: {_one_line(error)}") from error
        if absent := [key for key in grain(path) if key not in {name for name, *_ in columns}]:
            raise InputError(f"{path}: got 'one row per {absent[0]}', wanted columns that it selects")


def select(
    connection: duckdb.DuckDBPyConnection, query: str, timeout_s: float | None = None
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query, at most for `timeout_s` seconds.

    Raise InputError for any other statement, for SQL that DuckDB rejects, and when the time is over.
    """
    statement = checked(connection, query)
    try:
        with time_limit(connection, timeout_s):
            return connection.sql(statement).materialize()
    except duckdb.OutOfMemoryException as error:
        first, *_ = str(error).splitlines()  # the others advise settings that are locked
        raise InputError(f"sql: {first}, wanted a query that needs less") from error
    except duckdb.Error as error:
        raise InputError(f"sql: {_one_line(error)}") from error


def _kinds(statements: list[duckdb.Statement]) -> str:
    return ", ".join(statement.type.name for statement in statements) or "nothing"


def _one_line(error: Exception) -> str:
    text = str(error)
    if type(error) is duckdb.Error:  # raised in Python, by the files of a restricted connection
        text = text.partition("\n\nLINE ")[0].strip().rpartition("\n")[2]
    return " ".join(text.split())
