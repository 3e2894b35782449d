"""Copies of small tables in memory, and of a few experiments' rows of large ones: a query of ours plans in a fifth of
the time without files."""

# Those of small tables are in a database of their own, `copies`, beside the views over the files, which has the same
# views. A table of it is a view over the files until a query needs it, and again if the table's files grow too large,
# so that queries read both alike. It follows the files: the rows of owners whose files have changed are read again.
#
# Of a question about a few owners whose rows are sealed, just their files are copied, beside what is copied already; if
# they are large, `NamedFiles` are views over just them.

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from evalflows.store.arrow import duckdb
from evalflows.store.layout import Layout, StoredFile, quoted, rows_in
from evalflows.store.layout import files as rows_of_files
from evalflows.store.schemas import TABLES, columns_of, text_columns

MOST_BYTES, MOST_FILES = 4 << 20, 300
"""The largest table that is copied: beyond that, reading it takes longer than some queries save."""

MOST_BYTES_OF_SOME = 1 << 20
"""The largest files of a few owners that are copied. Of larger ones, a query reads a few columns in less time."""

MOST_TEXT_BYTES = 32 << 20
"""The most bytes of texts that a process copies of a table. How large its files are does not tell: a megabyte of
one letter is some bytes in a file."""

UNMEASURED_BYTES = 64 << 10
"""Files whose texts are measured in their copy, in a fifth of the time: such small ones exhaust no memory."""

FIGURES = frozenset({"baselines", "decisions", "estimates", "limits", "ratings", "verdicts"})
"""Tables whose texts are short whatever the data are. To look for long ones takes as long as to copy a table."""

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

    @property
    def tables(self) -> Collection[str]:
        """The tables that are copied: whole, once they were followed."""
        return self._files.keys()

    def follow(self, states: Mapping[str, object], tables: Collection[str]) -> None:
        """Bring the copies of tables to a state of their files, which are local ones."""
        with self._lock:
            for table in tables:
                self._follow(table, _files_of(states, table))

    def has_some(
        self, states: Mapping[str, object], tables: Collection[str], owners: Mapping[str, Collection[str]]
    ) -> bool:
        """Bring the copies of the rows of a few owners, by column, to a state of their sealed files, beside those of
        others.

        Return False if some table is not copied, or if the files are large or packed with others.
        """
        with self._lock:
            every: dict[str, Files] = {}
            for table in tables:
                some, own = _files_of(states, table), owners[TABLES[table].owner]
                others = {owner: known for owner, known in self._files.get(table, {}).items() if owner not in own}
                every[table] = others | some
                is_apart = table in self._large or "" in some or _size(some) > MOST_BYTES_OF_SOME
                if is_apart or _is_large(every[table]):
                    return False
            for table, files in every.items():
                self._follow(table, files)
            return self._large.isdisjoint(tables)

    def _follow(self, table: str, files: Files) -> None:
        known = self._files.get(table)
        if files == known or (known is None and (table in self._large or _is_large(files))):
            return
        was_in = known or {}
        changed = [owner for owner in {*files, *was_in} if files.get(owner) != was_in.get(owner)]
        has_come_back = "" in was_in and not files.keys() >= {*changed}  # the packed rows of an owner count again
        is_all = known is None or "" in changed or len(changed) > MOST_OWNERS or has_come_back
        whose = f"where {TABLES[table].owner} in ({', '.join(map(quoted, changed))})"
        read = files if is_all else {owner: files[owner] for owner in changed if owner in files}
        rows = self._rows(table, read, "" if is_all else whose)
        is_measured, is_small = bool(read) and table not in FIGURES, _size(read) <= UNMEASURED_BYTES
        was = "view" if known is None else "table"
        self._connection.execute("begin")
        try:
            is_long = _is_large(files) or (is_measured and not is_small and self._has_long_texts(table, rows))
            if not is_long:
                if is_all:
                    self._make(table, "table", rows, was=was)
                else:
                    if "" in was_in or not was_in.keys().isdisjoint(changed):  # packed rows may be theirs
                        self._execute(f"delete from copies.source.{table} {whose}")
                    if read:
                        self._execute(f"insert into copies.source.{table} {rows}")
                was = "table"
                is_long = is_measured and is_small and self._has_long_texts(table)
            if is_long:
                self._large.add(table)
                self._make(table, "view", f"from memory.source.{table}", was=was)
            self._connection.execute("commit")
        except BaseException:  # also Ctrl-C, after which other queries follow
            self._connection.execute("rollback")
            raise
        if table in self._large:
            self._files.pop(table, None)
        else:
            self._files[table] = files

    def _make(self, table: str, kind: str, rows: str, *, was: str) -> None:
        """Replace a table, or the view over its files, by another one."""
        self._execute(f"drop {was} copies.source.{table}")
        self._execute(f"create {kind} copies.source.{table} as {rows}")

    def _has_long_texts(self, table: str, rows: str | None = None) -> bool:
        """Return whether the copy has too long texts, with these rows or, without any, as it is."""
        before = self._read.get(table, 0) if rows else 0
        self._read[table] = before + _text_bytes(self._connection, table, rows or f"from copies.source.{table}")
        return self._read[table] > MOST_TEXT_BYTES

    def _rows(self, table: str, files: Files, whose: str = "") -> str:
        """Return SQL of the rows in some files: all of a table, or those of owners, `whose`."""
        if self._has_damage:
            return f"from memory.source.{table} {whose}"
        paths = (path for of_owner in files.values() for path, _ in of_owner)
        return rows_in(self._layout, table, [*filter(None, map(StoredFile.at, paths))], with_folders=False)

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)


class NamedFiles:
    """Views beside those of one database, over just the files that a variable of a connection names, by table."""

    def __init__(self, views: duckdb.DuckDBPyConnection, layout: Layout, *, is_packed: bool) -> None:
        self._layout, self._is_packed, self._lock = layout, is_packed, threading.Lock()
        self._connection = views.cursor()
        self._made: set[str] = set()

    def find(
        self,
        cursor: duckdb.DuckDBPyConnection,
        files: Collection[str],
        tables: Collection[str],
        owners: Mapping[str, Collection[str]],
    ) -> None:
        """Let the queries of a cursor find the rows of owners, by column, in these sealed files of `tables`; they must
        not ask other tables."""
        with self._lock:
            if not self._made:  # the first time
                self._connection.execute("attach ':memory:' as named")
                self._connection.execute("copy from database memory to named")
            if missing := {*tables} - self._made:
                owning = _owning(dict.fromkeys((TABLES[table].owner for table in missing), ()))
                self._connection.execute(self._naming(dict.fromkeys(missing, ())) + owning)
            for table in missing:
                owner, columns = TABLES[table].owner, ", ".join(columns_of(table))
                rows = f"select {columns} from read_parquet(getvariable('files_of').{table}, hive_partitioning = false)"
                if self._is_packed:  # a packed file has rows of others
                    rows += f" where {owner} in getvariable('only_{owner}')"
                self._connection.execute(f"create or replace view named.source.{table} as {rows}")
                self._made.add(table)
        named = self._naming({table: [path for path in files if f"/{table}/" in path] for table in tables})
        if self._is_packed:
            named += _owning({owner: owners[owner] for owner in {TABLES[table].owner for table in tables}})
        cursor.execute(f"{named}set search_path = 'named.main,named.staging'")  # at once is quicker

    def _naming(self, files: Mapping[str, Collection[str]]) -> str:
        empty = self._layout.empty
        listed = [f"{table}: [{', '.join(map(quoted, (empty(table), *paths)))}]" for table, paths in files.items()]
        return f"set variable files_of = {{{', '.join(listed)}}}; "


def _owning(owners: Mapping[str, Collection[str]]) -> str:
    return "".join(
        f"set variable only_{owner} = [{', '.join(map(quoted, names))}]::varchar[]; " for owner, names in owners.items()
    )


OF_ITEMS = ("outputs", "judgements", "calls")
"""The tables with rows for each item of an experiment."""


class OwnerCopies:
    """The rows OF_ITEMS of a few experiments, unless they are large, beside views over all other tables: in a database
    that lasts until `close`. A table is made when the first query needs it, and again when its files change."""

    def __init__(
        self, experiments: Collection[str], alone: Callable[..., Mapping[str, object] | None] = lambda *_: None
    ) -> None:
        self.experiments = frozenset(experiments)
        self._alone = alone  # returns the files that have rows of owners in tables, if they are sealed
        self._name = f"owners_{secrets.token_hex(6)}"
        self._views: duckdb.DuckDBPyConnection | None = None  # of the database beside which it is
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._made: dict[str, Files] = {}  # of each table, the files that it was made from; none if it is a view
        self._copied: set[str] = set()

    def follow(
        self,
        views: duckdb.DuckDBPyConnection,
        states: Mapping[str, object],
        tables: Collection[str],
        whole: Collection[str],
    ) -> str:
        """Make what is not there yet of some tables, or was made of other files. Return the SQL with which a cursor of
        that database finds them."""
        if not any(table in OF_ITEMS and table not in whole for table in tables):
            return FIND_COPIES
        if views is not self._views:  # the first one, or damage was found since
            self.close()
            self._views, self._connection = views, views.cursor()
            self._connection.execute(f"attach ':memory:' as {self._name}")
            self._connection.execute(f"copy from database memory to {self._name}")
        for table in tables:
            files = self._files_of(states, table) if table in OF_ITEMS and table not in whole else {}
            if self._made.get(table) != files:
                self._make(table, files)
        return f"set search_path = '{self._name}.main,{self._name}.staging'"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.execute(f"detach {self._name}")
            self._connection.close()
        self._views = self._connection = None
        self._made, self._copied = {}, set()

    def _make(self, table: str, files: Files) -> None:
        assert self._connection is not None
        here, was = f"{self._name}.source.{table}", "table" if table in self._copied else "view"
        self._connection.execute("begin")
        try:
            self._connection.execute(f"drop {was} {here}")
            is_copied = bool(files) and self._is_copied(self._connection, here, table, files)
            if not is_copied:
                self._connection.execute(f"create view {here} as from copies.source.{table}")
            self._connection.execute("commit")
        except BaseException:  # also Ctrl-C, after which other queries follow
            self._connection.execute("rollback")
            raise
        (self._copied.add if is_copied else self._copied.discard)(table)
        self._made[table] = files

    def _files_of(self, states: Mapping[str, object], table: str) -> Files:
        """Return the files that may have the rows: the owners' own, and packed ones."""
        files = _files_of(states, table)
        return {owner: files[owner] for owner in ("", *sorted(self.experiments)) if owner in files}

    def _is_copied(self, connection: duckdb.DuckDBPyConnection, here: str, table: str, files: Files) -> bool:
        if _is_large({owner: of_owner for owner, of_owner in files.items() if owner}):
            return False
        owners = ", ".join(map(quoted, sorted(self.experiments)))
        alone = self._alone([table], {"experiment_id": self.experiments})
        rows = f"from {rows_of_files([*alone])}" if alone else f"from memory.source.{table}"
        columns = ", ".join(columns_of(table))
        connection.execute(f"create table {here} as select {columns} {rows} where experiment_id in ({owners})")
        if _text_bytes(connection, table, f"from {here}") <= MOST_TEXT_BYTES:
            return True
        connection.execute(f"drop table {here}")
        return False


def _text_bytes(connection: duckdb.DuckDBPyConnection, table: str, rows: str) -> int:
    texts = f"concat({', '.join(text_columns(table))})"  # planned in half the time of a sum each
    query = f"select sum(strlen({texts})) from ({rows})"
    ((size,),) = connection.execute(query).fetchall()
    return int(size or 0)


def _files_of(states: Mapping[str, object], table: str) -> Files:
    files: Files = {}
    for path, state in states.items():
        if f"/{table}/" in path and (file := StoredFile.at(path)) and file.table == table:
            files.setdefault(file.owner, []).append((path, state))
    return files


def _is_large(files: Files) -> bool:
    return sum(map(len, files.values())) > MOST_FILES or _size(files) > MOST_BYTES


def _size(files: Files) -> int:
    states: list[Any] = [state for of_owner in files.values() for _, state in of_owner]
    return sum(size for size, *_ in states)
