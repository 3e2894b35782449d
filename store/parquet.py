"""The store: write-once Parquet files in a folder or an object store.

`<table>/sealed/<owner>/rows.parquet` holds finished rows, each key once. `<table>/open/<owner>/<part>.parquet` holds
rows of unfinished work, in which retries may repeat a key. If an owner has a sealed file, its open parts are ignored,
so sealing and reopening take one rename per table. DuckDB lists the files of each state separately, so a query may miss
an owner that is sealed between the listings: `Store.query` detects this, a plain connection does not.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import InputError
from evalflows.store.layout import Layout, files, newest
from evalflows.store.parquet_files import FORMAT, format_of, storage_errors, write_file
from evalflows.store.restricted import restrict
from evalflows.store.schemas import TABLES, recorded_after, schema_of, to_arrow, to_rows
from evalflows.store.source import connect_source, shared

Result = TypeVar("Result")

_MARK = json.dumps({"format": FORMAT, "tables": [*TABLES]}).encode()
_SINCE = ("mtime", "LastModified", "updated", "created", "ETag")  # names of the modification time in file systems
REOPENED = "reopened"
"""The part with the rows that were sealed before an owner was reopened."""


class Store:
    """The files under one root. Any number of processes may use it concurrently.

    Raise InputError if the root cannot be created or read.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.layout = Layout.at(root)
        self._steady: ContextVar[bool] = ContextVar("evalflows_steady", default=False)
        try:
            self._fs, _ = fsspec.core.url_to_fs(self.layout.root)
            if not self._is_prepared():
                self._prepare()
        except (OSError, ValueError, ImportError) as error:
            raise InputError(f"store {self.layout.root!r}: {error}") from error

    def publish(self, table: str, owner: str, rows: Iterable[object] | pa.Table) -> None:
        """Write and seal all rows of an owner in a table.

        Raise ValueError for a row of another owner, and StorageError if they cannot be written.
        """
        self._write(self.layout.sealed(table, owner), _owned(table, owner, rows))

    def append(self, table: str, owner: str, part: str, rows: Iterable[object] | pa.Table) -> None:
        """Add rows to an open owner; without rows, write nothing.

        Results are recorded after the part's earlier ones even if the clock was set back, since the later row wins.

        Raise ValueError for a row of another owner, and StorageError if they cannot be written.
        """
        data = _owned(table, owner, rows)
        if data.num_rows:
            if TABLES[table].settled and (earlier := self._open_files(table, owner, [part])):
                data = recorded_after(data, self._last_recorded(earlier))
            self._write(f"{self.layout.open_folder(table, owner)}/{part}.{secrets.token_hex(6)}.parquet", data)

    def read(self, table: str, owner: str, parts: Sequence[str] | None = None) -> list[Any]:
        """Return an owner's rows as records, each key once; for an open owner, only those of `parts` if given.

        Rows that were sealed before the owner was reopened belong to every part.
        """
        return to_rows(table, self.read_arrow(table, owner, parts))

    def read_arrow(self, table: str, owner: str, parts: Sequence[str] | None = None) -> pa.Table:
        """Return the same rows as an Arrow table."""
        if self.is_sealed(table, owner):
            path = self.layout.sealed(table, owner)
            with storage_errors(path), self._fs.open(path, "rb") as file:
                return pq.read_table(file)
        return self._newest(table, self._open_files(table, owner, parts))

    def is_sealed(self, table: str, owner: str) -> bool:
        return self._exists(self.layout.sealed(table, owner))

    def seal(self, owner: str, tables: Sequence[str]) -> None:
        """Merge an owner's open parts into one file per table with unique keys, and remove the parts. Idempotent."""
        for table in tables:
            parts = self._open_files(table, owner)
            if parts and not self.is_sealed(table, owner):
                self.publish(table, owner, self._newest(table, parts))
            self._remove_open(table, owner)

    def reopen(self, owner: str, tables: Sequence[str]) -> None:
        """Turn an owner's sealed files back into open parts, so that rows can be added. Idempotent."""
        for table in tables:
            if self.is_sealed(table, owner):
                self._remove_open(table, owner)  # left over from an interrupted seal
                sealed, folder = self.layout.sealed(table, owner), self.layout.open_folder(table, owner)
                with storage_errors(folder):
                    self._fs.makedirs(folder, exist_ok=True)
                    self._fs.mv(sealed, f"{folder}/{REOPENED}.{secrets.token_hex(6)}.parquet")

    def connect(self, prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB with every table as a view in the schema `source`.

        With `prepare`, it is restricted to the store's files after that has created its views.
        """
        connection = connect_source(self.layout, self._fs, restricted=prepare is not None)
        if prepare is not None:
            prepare(connection)
            restrict(connection, self.layout, self._fs)
        return connection

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to this process's shared database, with the catalog's views once they were used."""
        return shared.cursor(self.layout, self._fs, self.connect)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, repeated if an owner was sealed meanwhile."""
        return self._fetch(sql, parameters, duckdb.DuckDBPyConnection.fetchall)

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Any]:
        """Return the columns of a query as numpy arrays, ten times faster than rows for millions of rows."""
        return self._fetch(sql, parameters, duckdb.DuckDBPyConnection.fetchnumpy)

    def _fetch(
        self, sql: str, parameters: Sequence[object], fetch: Callable[[duckdb.DuckDBPyConnection], Result]
    ) -> Result:
        def read() -> Result:
            with self.cursor() as connection:
                return fetch(connection.execute(sql, parameters))

        return self.steady(read)

    def steady(self, read: Callable[[], Result]) -> Result:
        """Return the result of `read`, repeated if files changed meanwhile, so that no owner is missed or half read.

        All queries within `read` see one consistent state of the store.
        """
        if self._steady.get():
            return read()
        token = self._steady.set(True)
        try:
            while True:
                before = self._states()
                try:
                    result = read()
                except duckdb.Error:
                    if self._states() == before:
                        raise
                else:
                    if self._states() == before:
                        return result
        finally:
            self._steady.reset(token)

    def _prepare(self) -> None:
        """Write the empty files, and the marker last: a store with a marker is complete."""
        for name, table in TABLES.items():
            for path in self.layout.empties(name):
                write_file(self.layout, self._fs, path, schema_of(table.record).empty_table())
        self._fs.pipe_file(self.layout.marker, _MARK)

    def _is_prepared(self) -> bool:
        """Return whether the store has all tables. Raise ValueError for a store of another format."""
        if not self._exists(self.layout.marker):
            return False
        mark = self._fs.cat_file(self.layout.marker)
        written = format_of(mark)
        if written < FORMAT:
            raise ValueError(f"got format {written}, wanted {FORMAT}: `evalflows migrate` rewrites an older store")
        return bool(mark == _MARK)

    def _newest(self, table: str, paths: list[str]) -> pa.Table:
        if not paths:
            return to_arrow(table, [])
        with self.cursor() as connection:
            return _as_arrow(table, connection.sql(newest(table, files(paths))).to_arrow_table())

    def _last_recorded(self, paths: list[str]) -> datetime | None:
        with self.cursor() as connection:
            newest = connection.execute(f"select max(recorded_at) from {files(paths)}").fetchone()
        return newest[0] if newest else None

    def _open_files(self, table: str, owner: str, parts: Sequence[str] | None = None) -> list[str]:
        self._fs.invalidate_cache()
        paths = sorted(self._fs.glob(f"{self.layout.open_folder(table, owner)}/*.parquet"))
        if parts is not None:
            paths = [path for path in paths if path.rpartition("/")[2].partition(".")[0] in {*parts, REOPENED}]
        return [self._fs.unstrip_protocol(path) if not self.layout.is_local else path for path in paths]

    def _states(self) -> dict[str, object]:
        """Return the files, with their modification times."""
        if self.layout.is_local:
            return _local_states(Path(self.layout.root))
        self._fs.invalidate_cache()
        details = self._fs.glob(f"{self.layout.root}/*/*/*/*.parquet", detail=True)
        return {path: next((info[key] for key in _SINCE if key in info), None) for path, info in details.items()}

    def _exists(self, path: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.exists(path))

    def _remove_open(self, table: str, owner: str) -> None:
        folder = self.layout.open_folder(table, owner)
        if self._exists(folder):
            with storage_errors(folder):
                self._fs.rm(folder, recursive=True)

    def _write(self, path: str, data: pa.Table) -> None:
        """Write a file. Raise StorageError if that fails, also if somebody removed the store meanwhile."""
        with storage_errors(path):
            if not self._exists(self.layout.marker):
                raise FileNotFoundError(errno.ENOENT, "the store is gone", self.layout.marker)
            write_file(self.layout, self._fs, path, data)


def _local_states(root: Path) -> dict[str, object]:
    """Return the files of a local folder with their modification times, five times faster than with fsspec."""
    while True:
        with suppress(FileNotFoundError):  # a file or a folder was removed meanwhile: list again
            return {str(path): path.stat().st_mtime_ns for path in root.glob("*/*/*/*.parquet")}


def _owned(table: str, owner: str, rows: Iterable[object] | pa.Table) -> pa.Table:
    """Return rows after checking that their owner matches their folder, which DuckDB relies on."""
    data = _as_arrow(table, rows)
    others = set(data.column(TABLES[table].owner).unique().to_pylist()) - {owner}
    if others:
        raise ValueError(f"{table}: got a row of {TABLES[table].owner} {others.pop()!r}, wanted only {owner!r}")
    return data


def _as_arrow(table: str, rows: Iterable[object] | pa.Table) -> pa.Table:
    if not isinstance(rows, pa.Table):
        return to_arrow(table, rows)
    schema = schema_of(TABLES[table].record)
    return rows.select(schema.names).cast(schema)
