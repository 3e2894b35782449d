"""Copies of the small tables in memory, for lists of thousands of experiments.

Opening a Parquet file for each of 2,000 experiments takes seconds. Their rows take some MB, so a process keeps a copy,
which follows the files: before each query all files of these tables are listed, an owner's rows are read again if the
state of any of its files changed, and all are if the known damage changed. A query sees what is there when it begins.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import atexit
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evalflows.store.arrow import duckdb, with_relations
from evalflows.store.file_states import owner_states, packed_states
from evalflows.store.file_systems import follow
from evalflows.store.layout import quoted
from evalflows.store.packs import packed_owners
from evalflows.store.schemas import TABLES
from evalflows.store.sql import note_leases
from evalflows.store.store import Store
from evalflows.store.views import HELD_LEASES, tables_of, view_files, view_statement, view_statements, views_of

SMALL = ("experiments", "estimates", "verdicts", "decisions", "checks")
"""The tables that are copied: some rows for each experiment, none for each example."""

VIEWS = frozenset((*SMALL, "gate_decisions", "people_checks", "all_verdicts", "current_verdicts"))
"""The views that read no other tables."""

KEPT = ("people_checks", "gate_decisions", "all_verdicts")
"""Those of VIEWS, in order of dependency, whose rows are computed once per state of the files, by the first query that
reads them: to plan one again takes longer than to read its rows. They do not depend on the leases."""

MAX_STORES = 4

Files = Mapping[str, tuple[object, object]]
"""By table, the states of its packed files and of those of owners."""

Owners = Mapping[tuple[str, str], object]
"""By table and owner, what changes with the files."""

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Returns the rows of a query: SQL and its values."""


@contextmanager
def small_tables(store: Store) -> Iterator[Ask]:
    """Yield what queries the views of the small tables. All queries of the block see one state of the store.

    No file is verified. A query that reads another table raises ValueError.
    """
    copy = _copies.of(store)
    with copy.reading(store) as database:

        def ask(sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            if others := tables_of(sql) - {*SMALL}:
                raise ValueError(f"got a query of {', '.join(sorted(others))}, wanted only {', '.join(SMALL)}")
            copy.keep(views_of(sql))
            return database.execute(sql, list(values)).fetchall()

        yield ask


class _Copy:
    """The rows of one store's small tables. One thread at a time uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._files: Files = {}
        self._owners: Owners = {}
        self._damage_version = 0
        self._kept: set[str] = set()  # views that are tables now

    @contextmanager
    def reading(self, store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            yield self._follow(store)

    def keep(self, views: Collection[str]) -> None:
        """Make tables of those of these views that are to be kept, until the files change."""
        database, self._database = self._database, None  # in case that it is interrupted
        assert database is not None
        for name in KEPT:
            if name in views and name not in self._kept:
                database.execute(
                    f"create table kept as from {name}; drop view {name}; alter table kept rename to {name}"
                )
                self._kept.add(name)
        self._database = database

    def _follow(self, store: Store) -> duckdb.DuckDBPyConnection:
        """Read what has changed, and again what changed meanwhile."""
        if store.left_out():
            store.steady(lambda: None)  # forgets files that were replaced since
        while True:
            version, files = store.damage_version, _files(store)
            if self._database is None or version != self._damage_version:
                self._database, self._files, self._owners, self._damage_version = _empty(store), {}, {}, version
                self._kept = set()
            if files == self._files:
                note_leases(store, self._database)
                return self._database
            owners = _owners(store)
            database, self._database = self._database, None  # some tables may have been read when it is interrupted
            try:
                follow(store.filesystem)  # after the files were listed: what is newer is read again the next time
                self._read(store, database, owners)
                self._database, self._files = database, files
            except duckdb.Error:
                if _owners(store) == owners and not store.mend(since=version):
                    raise

    def _read(self, store: Store, database: duckdb.DuckDBPyConnection, owners: Owners) -> None:
        """Replace the rows of owners whose files have changed."""
        for path in view_files() if self._kept else ():
            if path.stem in self._kept:
                database.execute(f"drop table {path.stem}; {view_statement(path)}")
        self._kept = set()
        changed = [key for key in {*owners, *self._owners} if owners.get(key) != self._owners.get(key)]
        for table in SMALL:
            if of_table := [owner for name, owner in changed if name == table]:
                _replace(store, database, table, of_table, is_all=not self._owners)
        self._owners = owners


def _files(store: Store) -> Files:
    layout, fs = store.layout, store.filesystem
    return {table: (packed_states(layout, fs, table), owner_states(layout, fs, table)) for table in SMALL}


def _owners(store: Store) -> Owners:
    layout, fs = store.layout, store.filesystem
    return {
        (table, owner): state
        for table in SMALL
        for owner, state in {**packed_owners(layout, fs, table), **owner_states(layout, fs, table)}.items()
    }


def _empty(store: Store) -> duckdb.DuckDBPyConnection:
    """Return a database in which the views read tables without rows."""
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    database.execute("create schema source; create schema staging")
    with store.cursor() as connection:
        for table in SMALL:
            database.register(
                "read", with_relations(connection).sql(f"select * from source.{table} limit 0").to_arrow_table()
            )
            database.execute(f"create table source.{table} as select * from read")
    for statement in (*view_statements(VIEWS), HELD_LEASES):
        database.execute(statement)
    note_leases(store, database)
    return database


def _replace(
    store: Store, database: duckdb.DuckDBPyConnection, table: str, owners: Collection[str], *, is_all: bool
) -> None:
    """Replace the rows of owners; `is_all` if there are none yet, since a filter on thousands takes time."""
    wanted = f"{TABLES[table].owner} in ({', '.join(map(quoted, owners))})"
    with store.cursor() as connection:
        query = f"select * from source.{table}{'' if is_all else f' where {wanted}'}"
        database.register("read", with_relations(connection).sql(query).to_arrow_table())
    if not is_all:
        database.execute(f"delete from source.{table} where {wanted}")
    database.execute(f"insert into source.{table} select * from read")
    database.unregister("read")


class _Copies:
    """The copies of this process, by process and root: a database does not survive a fork."""

    def __init__(self) -> None:
        self._by_root: dict[tuple[int, str], _Copy] = {}
        self._lock = threading.Lock()

    def of(self, store: Store) -> _Copy:
        key = (os.getpid(), store.layout.root)
        with self._lock:
            if key not in self._by_root and len(self._by_root) >= MAX_STORES:
                self._by_root.pop(next(iter(self._by_root)))
            return self._by_root.setdefault(key, _Copy())

    def close(self) -> None:
        with self._lock:
            self._by_root.clear()


_copies = _Copies()
atexit.register(_copies.close)
