"""The store: write-once Parquet files in a folder or an object store.

`<table>/sealed/<owner>/rows.parquet` holds what is finished, each key once. `<table>/open/<owner>/<part>.parquet`
holds what is still being made, where a retry may give a key twice. Where an owner has a sealed file, its open parts
do not count: so sealing and reopening turn on one rename a table. DuckDB lists the files of each state by itself, so
that a query may miss an owner that is sealed between its listings: `Store.query` notices, a bare connection does not.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import InputError
from store.layout import Layout, files, newest
from store.schemas import TABLES, schema_of, to_arrow, to_rows
from store.source import connect_source, shared

Result = TypeVar("Result")

ROWS_PER_GROUP = 50_000
FORMAT = 4
"""Of the stored files: another one for each change of columns that old files cannot be read with."""
_MARK = json.dumps({"format": FORMAT, "tables": [*TABLES]}).encode()
_SINCE = ("mtime", "LastModified", "updated", "created", "ETag")  # what file systems call it
REOPENED = "reopened"
"""The part that holds what was sealed before an owner was reopened."""


class Store:
    """The files under one root. Any number of processes may use it at once.

    Raises InputError for a root that cannot be made or read.
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
        """Write all that an owner has in a table, sealed at once. Raises ValueError for a row of another owner."""
        self._write(self.layout.sealed(table, owner), _owned(table, owner, rows))

    def append(self, table: str, owner: str, part: str, rows: Iterable[object] | pa.Table) -> None:
        """Add rows to an open owner; for no rows, nothing is written. Raises ValueError for a row of another owner."""
        data = _owned(table, owner, rows)
        if data.num_rows:
            self._write(f"{self.layout.open_folder(table, owner)}/{part}.{secrets.token_hex(6)}.parquet", data)

    def read(self, table: str, owner: str, parts: Sequence[str] | None = None) -> list[Any]:
        """An owner's rows as records, each key once; of an open owner, only those parts that `parts` names.

        Rows that were sealed before the owner was reopened count to every part.
        """
        return to_rows(table, self.read_arrow(table, owner, parts))

    def read_arrow(self, table: str, owner: str, parts: Sequence[str] | None = None) -> pa.Table:
        """The same as an Arrow table."""
        if self.is_sealed(table, owner):
            with self._fs.open(self.layout.sealed(table, owner), "rb") as file:
                return pq.read_table(file)
        return self._newest(table, self._open_files(table, owner, parts))

    def is_sealed(self, table: str, owner: str) -> bool:
        return self._exists(self.layout.sealed(table, owner))

    def seal(self, owner: str, tables: Sequence[str]) -> None:
        """Turn an owner's open parts into one file a table, keys unique, and remove the parts. Safe to repeat."""
        for table in tables:
            parts = self._open_files(table, owner)
            if parts and not self.is_sealed(table, owner):
                self.publish(table, owner, self._newest(table, parts))
            self._remove_open(table, owner)

    def reopen(self, owner: str, tables: Sequence[str]) -> None:
        """Turn an owner's sealed files back into open parts, so that rows can be added. Safe to repeat."""
        for table in tables:
            if self.is_sealed(table, owner):
                self._remove_open(table, owner)  # what a seal that was broken off has left
                folder = self.layout.open_folder(table, owner)
                self._fs.makedirs(folder, exist_ok=True)
                self._fs.mv(self.layout.sealed(table, owner), f"{folder}/{REOPENED}.{secrets.token_hex(6)}.parquet")

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB with every table as a view in the schema `source`."""
        return connect_source(self.layout, self._fs)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The same, shared by the whole process, with the views of the catalog besides once it was asked."""
        return shared.cursor(self.layout, self._fs, self.connect)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query, asked again if an owner was sealed meanwhile: DuckDB lists files one after another."""
        return self._asked(sql, parameters, duckdb.DuckDBPyConnection.fetchall)

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Any]:
        """The columns of a query as numpy arrays, which for millions of rows take a tenth of what rows do."""
        return self._asked(sql, parameters, duckdb.DuckDBPyConnection.fetchnumpy)

    def _asked(
        self, sql: str, parameters: Sequence[object], fetch: Callable[[duckdb.DuckDBPyConnection], Result]
    ) -> Result:
        def read() -> Result:
            with self.cursor() as connection:
                return fetch(connection.execute(sql, parameters))

        return self.steady(read)

    def steady(self, read: Callable[[], Result]) -> Result:
        """What `read` returns, asked again if files came or went meanwhile: no owner is missed, or read half.

        Queries within `read` are all of them as the store is at one moment.
        """
        if self._steady.get():
            return read()
        token = self._steady.set(True)
        try:
            while True:
                before = self._states()
                try:
                    found = read()
                except duckdb.Error:
                    if self._states() == before:
                        raise
                else:
                    if self._states() == before:
                        return found
        finally:
            self._steady.reset(token)

    def _prepare(self) -> None:
        """Write the files without rows, and the marker last: a store that bears it is whole."""
        for name, table in TABLES.items():
            for path in self.layout.empties(name):
                self._write(path, schema_of(table.record).empty_table())
        self._fs.pipe_file(self.layout.marker, _MARK)

    def _is_prepared(self) -> bool:
        """False too for a store from before a table was added. Raises ValueError for one of another format."""
        if not self._exists(self.layout.marker):
            return False
        mark = self._fs.cat_file(self.layout.marker)
        if (found := json.loads(mark).get("format")) != FORMAT:
            raise ValueError(f"written in format {found}, wanted {FORMAT}: name another store by EVALFLOWS_STORE")
        return bool(mark == _MARK)

    def _newest(self, table: str, paths: list[str]) -> pa.Table:
        if not paths:
            return to_arrow(table, [])
        with self.cursor() as connection:
            return _as_arrow(table, connection.sql(newest(table, files(paths))).to_arrow_table())

    def _open_files(self, table: str, owner: str, parts: Sequence[str] | None = None) -> list[str]:
        self._fs.invalidate_cache()
        found = sorted(self._fs.glob(f"{self.layout.open_folder(table, owner)}/*.parquet"))
        if parts is not None:
            found = [path for path in found if path.rpartition("/")[2].partition(".")[0] in {*parts, REOPENED}]
        return [self._fs.unstrip_protocol(path) if not self.layout.is_local else path for path in found]

    def _states(self) -> dict[str, object]:
        """Which files there are, and since when."""
        if self.layout.is_local:
            return dict(_local_states(Path(self.layout.root)))
        self._fs.invalidate_cache()
        found = self._fs.glob(f"{self.layout.root}/*/*/*/*.parquet", detail=True)
        return {path: next((info[key] for key in _SINCE if key in info), None) for path, info in found.items()}

    def _exists(self, path: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.exists(path))

    def _remove_open(self, table: str, owner: str) -> None:
        folder = self.layout.open_folder(table, owner)
        if self._exists(folder):
            self._fs.rm(folder, recursive=True)

    def _write(self, path: str, data: pa.Table) -> None:
        if self.layout.is_local:
            _write_durably(Path(path), data)
        else:
            sink = pa.BufferOutputStream()
            _write_parquet(data, sink)
            self._fs.pipe_file(path, sink.getvalue().to_pybytes())


def _local_states(root: Path) -> Iterator[tuple[str, object]]:
    """The same for a folder, where it takes a fifth of the time without fsspec."""
    for path in root.glob("*/*/*/*.parquet"):
        with suppress(FileNotFoundError):  # it went meanwhile
            yield str(path), path.stat().st_mtime_ns


def _owned(table: str, owner: str, rows: Iterable[object] | pa.Table) -> pa.Table:
    """Rows whose owner is the one that their folder is named by: DuckDB believes the folder."""
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


def _write_parquet(data: pa.Table, sink: Any) -> None:
    pq.write_table(data, sink, compression="zstd", row_group_size=ROWS_PER_GROUP)


def _write_durably(target: Path, data: pa.Table) -> None:
    """Write beside the target, force it to the disk, then rename: no reader ever sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb") as file:
            _write_parquet(data, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
