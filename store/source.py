"""A DuckDB over the store's files: the schema `source` has a view for every table, as they are when a query runs."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

import duckdb

from store.layout import Layout
from store.schemas import TABLES

MOST_SHARED = 4


def open_duckdb(layout: Layout, filesystem: Any) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that can read the store's files; `filesystem` is the fsspec one of an object store."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    if not layout.is_local:
        connection.register_filesystem(filesystem)
    return connection


def connect_source(layout: Layout, filesystem: Any) -> duckdb.DuckDBPyConnection:
    """The same with the schema `source`."""
    connection = open_duckdb(layout, filesystem)
    connection.execute("create schema source")
    for table in TABLES:
        connection.execute(f"create view source.{table} as {layout.every_row(table)}")
    return connection


class Shared:
    """One database a root and process, for the store's own queries: to make one takes longer than most of them.

    A view has no rows of its own, so it is as good when the files are others. `close` before the interpreter ends,
    or DuckDB reports what it still holds.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}
        self._lock = threading.Lock()

    def cursor(
        self, layout: Layout, filesystem: Any, make: Callable[[], duckdb.DuckDBPyConnection]
    ) -> duckdb.DuckDBPyConnection:
        """A connection of one's own to the database of a root, made by `make` where there is none yet."""
        key = (os.getpid(), layout.root)  # a database does not live on in a forked process
        with self._lock:
            if key not in self._made:
                if len(self._made) >= MOST_SHARED:
                    self._made.pop(next(iter(self._made)))
                self._made[key] = make()
            cursor = self._made[key].cursor()
        cursor.execute("set timezone = 'UTC'")
        return cursor

    def close(self) -> None:
        with self._lock:
            self._made.clear()


shared = Shared()
atexit.register(shared.close)
