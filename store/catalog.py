"""Querying the store with SQL: an in-memory DuckDB with a view per question (marts, in the schema `main`) and per table
(in `staging`, where queries find them by their names)."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from evalflows.specs.errors import InputError
from evalflows.store.layout import quoted
from evalflows.store.leases.lease import held_leases
from evalflows.store.parquet import Store
from evalflows.store.restricted import time_limit
from evalflows.store.statements import checked
from evalflows.store.verification import texts_in
from evalflows.store.views import (
    CHANGES_BETWEEN,
    SQL,
    grain,
    is_mart,
    is_own,
    own_views,
    tables_of,
    view_files,
    view_statement,
    view_statements,
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
        return _restricted(store, None)
    connection = store.connect()
    prepare(store, connection)
    _create_own(connection)
    return connection


def _restricted(
    store: Store, names: frozenset[str] | None, memory_bytes: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A restricted connection. The user's own marts come last: DuckDB opens the files that a new view reads."""
    connection = store.connect(partial(prepare, store, names=names), memory_bytes=memory_bytes)
    _create_own(connection, names)
    return connection


def select_from(
    store: Store, query: str, timeout_s: float | None = None, memory_bytes: int | None = None
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query over the views, as `select`, without the owners of damaged files.

    The connection is restricted to the store. It has the views that the query seems to read, which takes a third of the
    time of all, and all if that was not enough.
    """
    names = views_of(query) or None
    while True:
        connection, version = _restricted(store, names, memory_bytes), store.damage_version
        try:
            return select(connection, query, timeout_s)
        except InputError as error:
            if names is not None and isinstance(error.__cause__, duckdb.CatalogException):
                names = None
                continue
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
    """The store's own DuckDB, with the views that the queries read; creating all takes longer than most queries."""
    wanted = frozenset().union(*map(views_of, queries))
    with store.cursor() as catalog:
        with _creating:
            known = {name for (name,) in catalog.execute(_KNOWN_VIEWS, [CHANGES_BETWEEN in wanted]).fetchall()}
            if not wanted <= known:
                _create_views(catalog, wanted - known)
                _create_own(catalog, wanted - known)
        if wanted & {"experiments", "comparison_sets"}:
            note_leases(store, catalog)
        yield catalog


_creating = threading.Lock()  # threads share the database, and DuckDB refuses to create a view twice at the same time
_KNOWN_VIEWS = f"""select view_name from duckdb_views() where schema_name in ('main', 'staging') and not internal
union all select function_name from duckdb_functions() where $1 and function_name = '{CHANGES_BETWEEN}'"""


def prepare(store: Store, connection: duckdb.DuckDBPyConnection, *, names: frozenset[str] | None = None) -> None:
    """Create the views of these names, all by default, over a schema `source`; which leases are held is as of now."""
    _create_views(connection, names)
    note_leases(store, connection)


def note_leases(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    """Tell a connection which run groups and comparisons a process works on now."""
    names = ", ".join(map(quoted, held_leases(store)))
    connection.execute(f"set variable held_leases = [{names}]::varchar[]")


def _create_views(connection: duckdb.DuckDBPyConnection, names: frozenset[str] | None) -> None:
    """Create the views of these names, which include those that they read; all for None."""
    for statement in view_statements(names):
        connection.execute(statement)


def _create_own(connection: duckdb.DuckDBPyConnection, names: frozenset[str] | None = None) -> None:
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
