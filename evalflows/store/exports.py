"""Exports to a DuckDB file: views over the store's files, or tables that stand alone."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from evalflows.specs.errors import InputError
from evalflows.store.catalog import create_own_marts, is_own, view_files
from evalflows.store.catalog_file import FIND_STAGING, STORAGE_VERSION, views_key, write_views
from evalflows.store.exports.relations import Exported, Relation, relations, stage
from evalflows.store.exports.whole_files import whole_file
from evalflows.store.layout import identifier, quoted
from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a file holds under a name."""

    state: str
    rows: int | None  # None: a view


def export_views(store: Store, target: Path) -> list[Exported]:
    """Write a DuckDB file with every view of the store as a view in `main`, which reads the store at query time.

    A file that has these views is left as it is. Raise InputError if the store is no folder, if there is a file of
    something else, and if the file cannot be written.
    """
    if not store.layout.is_local:
        raise InputError(f"{target}: got views of an object store, which few BI tools can read, wanted --copy")
    root = store.layout.root
    before, wanted = _kept(target, root), relations(store)
    kept = {one.name: _Kept(_views_state(), None) for one in wanted}
    is_written = kept != before
    if is_written:
        with whole_file(target) as temporary:
            try:
                write_views(temporary, root=root)
                with duckdb.connect(str(temporary)) as connection:
                    connection.execute(FIND_STAGING)
                    create_own_marts(connection)
                    for table in TABLES:
                        connection.execute(f"create view if not exists main.{table} as from staging.{table}")
                    _describe(connection, "view", wanted, root, kept)
            except duckdb.Error as error:
                raise InputError(f"{target}: cannot be written: {error}") from error
    return [Exported(name=one.name, rows=None, is_written=is_written) for one in wanted]


def _views_state() -> str:
    """Return what changes with the views."""
    own = "\n".join(f"{path.stem}\n{path.read_text(encoding='utf-8')}" for path in view_files() if is_own(path))
    return hashlib.sha256(f"{views_key()}\n{own}".encode()).hexdigest()


def export_tables(store: Store, target: Path, only: Sequence[str] = ()) -> list[Exported]:
    """Write a DuckDB file with every view of the store, or those of these names, as a table in `main`.

    Tables whose rows cannot have changed are taken from the file that is there; if none has, it is left as it is. Raise
    InputError as `export_views`, and for an unknown name.
    """
    root = store.layout.root
    before, wanted = _kept(target, root), relations(store, only)
    unchanged = {one.name for one in wanted if one.name in before and before[one.name].state == one.state}
    kept = {name: before[name] for name in unchanged}
    if len(unchanged) < len(wanted) or kept != before:
        with duckdb.connect() as connection, _database(target, connection) as name:
            if unchanged:
                connection.execute(f"attach {quoted(str(target))} as before (read_only)")
            connection.execute(f"use {name}")
            for one in wanted:
                rows = _fill(
                    connection, store, one, f"before.main.{identifier(one.name)}" if one.name in kept else None
                )
                kept[one.name] = _Kept(one.state, rows)
            _describe(connection, "table", wanted, root, kept)
            connection.execute("use memory")
    return [Exported(name=one.name, rows=kept[one.name].rows, is_written=one.name not in unchanged) for one in wanted]


def _fill(connection: duckdb.DuckDBPyConnection, store: Store, relation: Relation, before: str | None) -> int:
    """Create the table of a relation, from one that is up to date, else from the store. Return its number of rows."""
    with TemporaryDirectory(prefix="evalflows-") as scratch:
        source = before
        if source is None:
            staged = Path(scratch) / "staged.parquet"
            stage(store, relation, staged)
            source = f"read_parquet({quoted(str(staged))})"
        create = f"create table main.{identifier(relation.name)} as from {source}"
        ((count,),) = connection.execute(create).fetchall()
    return int(count)


@contextmanager
def _database(target: Path, connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Attach a new database that takes the target's name when the block has filled it. Yield its name in SQL."""
    with whole_file(target) as temporary:
        try:
            connection.execute(f"attach {quoted(str(temporary))} as export (storage_version '{STORAGE_VERSION}')")
            yield "export"
            connection.execute("detach export")
        except duckdb.Error as error:
            raise InputError(f"{target}: cannot be written: {error}") from error
        finally:
            Path(f"{temporary}.wal").unlink(missing_ok=True)


def _describe(
    connection: duckdb.DuckDBPyConnection, kind: str, wanted: Sequence[Relation], root: str, kept: dict[str, _Kept]
) -> None:
    """Say what the rows of each relation are, and note of which store and state they are."""
    for one in wanted:
        connection.execute(f"comment on {kind} main.{identifier(one.name)} is {quoted(one.about)}")
    connection.execute("create schema if not exists source")
    connection.execute("create table source.exported (name varchar, state varchar, rows bigint, store varchar)")
    noted = [(name, one.state, one.rows, root) for name, one in kept.items()]
    connection.executemany("insert into source.exported values (?, ?, ?, ?)", noted)


def _kept(target: Path, root: str) -> dict[str, _Kept]:
    """Return what an earlier export of the same store wrote; nothing if there is no file.

    Raise InputError for a file of something else, and for one that another program writes.
    """
    if not target.exists():
        return {}
    if not target.is_file():
        raise InputError(f"{target}: got a folder, wanted a file")
    if Path(f"{target}.wal").exists():  # DuckDB would apply its changes to the new file
        raise InputError(f"{target}: another program writes it ({target}.wal exists), wanted a file that is closed")
    try:
        with duckdb.connect(str(target), read_only=True) as connection:
            noted = connection.execute("select name, state, rows, store from source.exported").fetchall()
    except duckdb.Error as error:
        raise InputError(
            f"{target}: got a file that evalflows did not export, or that another program writes, wanted a new file"
        ) from error
    if others := {store for *_, store in noted} - {root}:
        raise InputError(f"{target}: got an export of the store {others.pop()}, wanted one of {root}, or a new file")
    return {name: _Kept(state, rows) for name, state, rows, _ in noted}
