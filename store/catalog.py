"""Querying the store with SQL: an in-memory DuckDB with a view per table (staging) and per question (marts)."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import PASS_K
from evalflows.store.attribute_macros import attribute_macros
from evalflows.store.layout import quoted
from evalflows.store.leases.lease import held_leases
from evalflows.store.parquet import Store
from evalflows.store.restricted import time_limit
from evalflows.store.schemas import TABLES
from evalflows.store.verification import texts_in

SQL = Path(__file__).parent / "sql"


def connect(root: str | os.PathLike[str] | None = None, *, restricted: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB with all views over the store's files, as of each query; which leases are held, as of now.

    Args:
        root: As in `Store`.
        restricted: For queries of others: read nothing but the store, load no extension, use half the memory at most.
            The settings are locked. Frames are found only if they are registered: `connection.register("name", frame)`.

    Raises InputError if the store cannot be created or read.
    """
    store = Store(root)
    if restricted:
        return store.connect(partial(_prepare, store))
    connection = store.connect()
    _prepare(store, connection)
    return connection


def select_from(store: Store, query: str, timeout_s: float | None = None) -> duckdb.DuckDBPyRelation:
    """Run one read-only query over the views, as `select`, without the owners of damaged files.

    The connection is restricted to the store. It has the views that the query seems to read, which takes a third of the
    time of all, and all if that was not enough.
    """
    names: Collection[str] | None = views_of(query) or None
    while True:
        connection, version = store.connect(partial(_prepare, store, names=names)), store.damage_version
        try:
            return select(connection, query, timeout_s)
        except InputError as error:
            if names is not None and isinstance(error.__cause__, duckdb.CatalogException):
                names = None
                continue
            if not isinstance(error.__cause__, _ABOUT_FILES) or not store.mend(since=version):
                raise


_ABOUT_FILES = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)


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
            known = {name for (name,) in catalog.execute(_KNOWN_VIEWS).fetchall()}
            if not wanted <= known:
                _create_views(catalog, wanted - known)
        if wanted & {"experiments", "comparison_sets"}:
            _note_leases(store, catalog)
        yield catalog


_creating = threading.Lock()  # threads share the database, and DuckDB refuses to create a view twice at the same time
_KNOWN_VIEWS = "select view_name from duckdb_views() where schema_name = 'main' and not internal"


def _prepare(store: Store, connection: duckdb.DuckDBPyConnection, *, names: Collection[str] | None = None) -> None:
    _create_views(connection, names)
    _note_leases(store, connection)


def _note_leases(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    """Tell a connection which run groups and comparisons a process works on now."""
    names = ", ".join(map(quoted, held_leases(store)))
    connection.execute(f"set variable held_leases = [{names}]::varchar[]")


def _create_views(connection: duckdb.DuckDBPyConnection, names: Collection[str] | None = None) -> None:
    """Create the views of these names, which include those that they read; all by default."""
    # Python and SQL share one pattern for names of pass@k metrics.
    connection.execute(f"create or replace macro base_metric(metric) as regexp_replace(metric, '{PASS_K}', '')")
    connection.execute(f"create or replace macro state_now(state, lease) as {_STATE_NOW}")
    if names is None or "observations" in names:
        for macro in attribute_macros():
            connection.execute(macro)
    for path in view_files():
        if names is None or path.stem in names:
            connection.execute(f"create or replace view {path.stem} as {path.read_text(encoding='utf-8')}")


# Without the variable, as in a cursor of the user's, the row's state is shown.
_STATE_NOW = """case when state = 'running' and not list_contains(getvariable('held_leases')::varchar[], lease)
                     then 'interrupted' else state end"""


@cache
def view_files() -> list[Path]:
    """Return the SQL files of the views, in order of dependency."""
    marts = {path.stem: path for path in sorted((SQL / "marts").glob("*.sql"))}
    reads = {
        name: re.findall(r"\b(?:from|join) (\w+)", path.read_text(encoding="utf-8")) for name, path in marts.items()
    }
    order = TopologicalSorter({name: [view for view in views if view in marts] for name, views in reads.items()})
    return [*sorted((SQL / "staging").glob("*.sql")), *(marts[name] for name in order.static_order())]


def view_text(name: str) -> str:
    """Return the SQL of a view."""
    return next(path for path in view_files() if path.stem == name).read_text(encoding="utf-8")


@cache
def tables_of(sql: str) -> frozenset[str]:
    """Return the store's tables that a query reads, also through views."""
    return (_named(sql) | views_of(sql)) & TABLES.keys()


@cache
def views_of(sql: str) -> frozenset[str]:
    """Return the views that a query reads, also through other views. Those of staging are named like their tables."""
    views = {path.stem: path for path in view_files()}
    named = _named(sql) & views.keys()
    return named.union(*(views_of(views[name].read_text(encoding="utf-8")) for name in named - TABLES.keys()))


def _named(sql: str) -> frozenset[str]:
    return frozenset(re.findall(r"\b(?:from|join)\s+(?:source\.)?(\w+)", sql))


def grain(path: Path) -> tuple[str, ...]:
    """Return the key columns of a view, read from its first line: `-- one row per a, b: …`."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = re.fullmatch(r"-- one row per ([a-z_]+(?:, [a-z_]+)*)(?:: .*)?", first)
    if not match:
        raise ValueError(f"{path.name}: got {first!r}, wanted '-- one row per column, column'")
    return tuple(match[1].split(", "))


def select(
    connection: duckdb.DuckDBPyConnection, query: str, timeout_s: float | None = None
) -> duckdb.DuckDBPyRelation:
    """Run one read-only query, at most for `timeout_s` seconds.

    Raise InputError for any other statement, for SQL that DuckDB rejects, and when the time is over.
    """
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise InputError(f"sql: {_one_line(error)}") from error
    if len(statements) != 1 or not _only_reads(connection, statements[0]):
        raise InputError(f"sql: got {_kinds(statements)}, wanted one query (select, from, with, describe, explain)")
    try:
        with time_limit(connection, timeout_s):
            return connection.sql(query).materialize()
    except duckdb.OutOfMemoryException as error:
        first, *_ = str(error).splitlines()  # the others advise settings that are locked
        raise InputError(f"sql: {first}, wanted a query that needs less") from error
    except duckdb.Error as error:
        raise InputError(f"sql: {_one_line(error)}") from error


def _only_reads(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> bool:
    """Return whether a statement is a query. EXPLAIN ANALYZE runs its statement, so that must be a query too."""
    if statement.type == duckdb.StatementType.EXPLAIN:
        bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", statement.query, flags=re.DOTALL)
        explained = re.sub(r"^\s*explain\s*(analyze\b)?\s*(\([^)]*\))?", "", bare, flags=re.IGNORECASE)
        (statement,) = connection.extract_statements(explained)
    return bool(statement.type == duckdb.StatementType.SELECT)


def _kinds(statements: list[duckdb.Statement]) -> str:
    return ", ".join(statement.type.name for statement in statements) or "nothing"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
