"""Copies of small tables in memory: a query of ours plans in a fifth of the time without files.

They are in a database of their own, `copies`, beside the views over the files, which has the same views. A table of it
is a view over the files until a query needs it, and again if the table's files grow too large, so that queries read
both alike. It follows the files: the rows of owners whose files have changed are read again.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import threading
from collections.abc import Collection, Mapping
from typing import Any

import duckdb

from evalflows.store.layout import Layout, StoredFile, quoted
from evalflows.store.layout import files as rows_of_files
from evalflows.store.schemas import TABLES, columns_of, text_columns

MOST_BYTES, MOST_FILES = 4 << 20, 300
"""The largest table that is copied: beyond that, reading it takes longer than some queries save."""

MOST_TEXT_BYTES = 32 << 20
"""The most bytes of texts that a process copies of a table. How large its files are does not tell: a megabyte of
one letter is some bytes in a file."""

MOST_OWNERS = 50
"""Owners whose rows are replaced; if more have changed, all rows are read again, which is quicker."""

FIND_COPIES = "set search_path = 'copies.main,copies.staging'"

Files = dict[str, list[tuple[str, object]]]
"""By owner, the files with its rows and their states; those of several owners under an empty name."""


class TableCopies:
    """The copies beside the views of one database."""

    def __init__(self, views: duckdb.DuckDBPyConnection, layout: Layout, *, has_damage: bool) -> None:
        self._layout, self._has_damage = layout, has_damage  # the views leave out owners then
        self._connection = views.cursor()
        self._connection.execute("attach ':memory:' as copies")
        self._connection.execute("copy from database memory to copies")
        self._files: dict[str, Files] = {}  # of the copied tables
        self._read: dict[str, int] = {}  # bytes of texts
        self._large: set[str] = set()  # tables that are copied no more
        self._lock = threading.Lock()

    def follow(self, states: Mapping[str, object], tables: Collection[str]) -> None:
        """Bring the copies of tables to a state of their files, which are local ones."""
        with self._lock:
            for table in tables:
                self._follow(table, _files_of(states, table))

    def _follow(self, table: str, files: Files) -> None:
        known = self._files.get(table)
        if files == known or (known is None and (table in self._large or _is_large(files))):
            return
        changed = [one for one in {*files, *(known or {})} if files.get(one) != (known or {}).get(one)]
        is_all = known is None or "" in changed or len(changed) > MOST_OWNERS
        whose = f"where {TABLES[table].owner} in ({', '.join(map(quoted, changed))})"
        read = files if is_all else {one: files[one] for one in changed if one in files}
        rows = self._rows(table, read, "" if is_all else whose)
        self._connection.execute("begin")
        try:
            if _is_large(files) or self._has_long_texts(table, rows):
                self._large.add(table)
                self._make(table, "view", f"from memory.source.{table}")
            elif is_all:
                self._make(table, "table", rows)
            else:
                self._execute(f"delete from copies.source.{table} {whose}")
                if read:
                    self._execute(f"insert into copies.source.{table} {rows}")
            self._connection.execute("commit")
        except duckdb.Error:
            self._connection.execute("rollback")
            raise
        if table in self._large:
            self._files.pop(table, None)
        else:
            self._files[table] = files

    def _make(self, table: str, kind: str, rows: str) -> None:
        """Replace a table, or the view over its files, by another one."""
        self._execute(f"drop {'table' if table in self._files else 'view'} copies.source.{table}")
        self._execute(f"create {kind} copies.source.{table} as {rows}")

    def _has_long_texts(self, table: str, rows: str) -> bool:
        """Whether these rows and those that were read before have too long texts."""
        sizes = " + ".join(f"coalesce(sum(strlen({name})), 0)" for name in text_columns(table))
        ((size,),) = self._connection.execute(f"select {sizes} from ({rows})").fetchall()
        self._read[table] = self._read.get(table, 0) + int(size)
        return self._read[table] > MOST_TEXT_BYTES

    def _rows(self, table: str, files: Files, whose: str = "") -> str:
        """Return SQL of the rows in some files: all of a table, or those of owners, `whose`.

        Where all are sealed, it reads just these files, which takes a fifth of the time of the view.
        """
        sealed = [next((path for path, _ in of_owner if _is_sealed(path)), None) for of_owner in files.values()]
        if self._has_damage or None in sealed:
            return f"from memory.source.{table} {whose}"
        paths = [self._layout.empty(table), *(path for path in sealed if path)]
        return f"select {', '.join(columns_of(table))} from {rows_of_files(paths)}"

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)


def _files_of(states: Mapping[str, object], table: str) -> Files:
    files: Files = {}
    for path, state in states.items():
        if f"/{table}/" in path and (file := StoredFile.at(path)) and file.table == table:
            files.setdefault(file.owner, []).append((path, state))
    return files


def _is_large(files: Files) -> bool:
    states: list[Any] = [state for of_owner in files.values() for _, state in of_owner]
    return len(states) > MOST_FILES or sum(size for size, *_ in states) > MOST_BYTES


def _is_sealed(path: str) -> bool:
    file = StoredFile.at(path)
    return file is not None and file.is_sealed
