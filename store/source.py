"""DuckDB over the store's files: its views read the files at query time."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import atexit
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from fsspec import AbstractFileSystem

from evalflows.store.catalog_file import FIND_STAGING, create_catalog, set_root
from evalflows.store.damage import Damages
from evalflows.store.layout import Layout, quoted

MAX_DATABASES = 4
LITTLE, AS_DUCKDB = "160MB", "80%"
"""Limits of the memory of a database. With the first, summing up half a million values takes half as long again."""


def connect_source(
    layout: Layout, damages: Damages, with_packed: bool, files: AbstractFileSystem | None = None
) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB with the catalog's views over a folder, without the owners of damaged files.

    `files` opens the store's files, if not the local file system does.
    """
    connection = duckdb.connect()
    if files is not None:
        connection.register_filesystem(files)
    connection.execute("set timezone = 'UTC'")
    connection.execute(f"set temp_directory = {quoted(_spill_folder())}")
    # the system caches files; DuckDB's own cache would grow to most of the memory
    connection.execute("set enable_external_file_cache = false")
    # it would aggregate before a join, where each value is a group of its own
    connection.execute("set disabled_optimizers = 'partial_aggregate_pushdown'")
    create_catalog(connection, layout, damages, with_packed=with_packed)
    if files is not None:
        set_root(connection, f"{files.protocol}://{layout.root}")
    return connection


def _spill_folder() -> str:
    """Return a folder for what exceeds the memory limit, which no other user can read or has made.

    All processes share it: each that uses it removes the files that killed ones have left.
    """
    folder = Path(tempfile.gettempdir(), f"evalflows-duckdb-{os.getuid()}")
    with suppress(OSError):  # DuckDB says so when it needs the folder
        folder.mkdir(mode=0o700, exist_ok=True)
        if not stat.S_ISDIR(folder.lstat().st_mode) or folder.lstat().st_uid != os.getuid():
            return tempfile.mkdtemp(prefix=f"{folder.name}-")
        folder.chmod(0o700)
    return str(folder)


class Shared:
    """One database per root and process, for the store's own queries: creating one takes longer than most queries.

    Views hold no rows, so they stay valid when files change. Call `close` before the interpreter exits, or DuckDB
    reports leaks.
    """

    def __init__(self) -> None:
        self._databases: dict[tuple[int, str, int, bool], duckdb.DuckDBPyConnection] = {}
        self._lock = threading.RLock()  # making a database may find damaged files
        self._memory = AS_DUCKDB

    def cursor(
        self, layout: Layout, damages: Damages, is_packed: bool, make: Callable[[], duckdb.DuckDBPyConnection]
    ) -> duckdb.DuckDBPyConnection:
        """Return a new connection to the database of a root.

        `make` creates it if needed, if damage was found, and when the store has its first packed files.
        """
        with self._lock:
            key = (os.getpid(), layout.root, damages.version, is_packed)  # a database does not survive a fork
            if key not in self._databases:
                if len(self._databases) >= MAX_DATABASES:
                    self._databases.pop(next(iter(self._databases)))
                self._databases[key] = make()
            cursor = self._databases[key].cursor()
        cursor.execute("set timezone = 'UTC'")
        cursor.execute(f"set memory_limit = '{self._memory}'")
        cursor.execute(FIND_STAGING)
        return cursor

    @contextmanager
    def little_memory(self, *, is_needed: bool = True) -> Iterator[None]:
        """Within the block, if it is needed, let queries use LITTLE memory, and the disk beyond that."""
        self._memory = LITTLE if is_needed else AS_DUCKDB
        try:
            yield
        finally:
            self._memory = AS_DUCKDB

    def lift_limit(self) -> bool:
        """Let queries use as much memory as DuckDB does by itself. Return whether they might not before."""
        was_limited, self._memory = self._memory != AS_DUCKDB, AS_DUCKDB
        return was_limited

    def close(self) -> None:
        with self._lock:
            self._databases.clear()


shared = Shared()
atexit.register(shared.close)
