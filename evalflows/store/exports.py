"""Exports for BI tools: every view of the store as a DuckDB file, or Parquet or CSV files, written whole or not at
all."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import FORMULA, csv_cell
from evalflows.specs.file_locks import try_lock
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import duckdb, pa, pq
from evalflows.store.database import FIND_STAGING, STORAGE_VERSION, views_key, write_views
from evalflows.store.file_states import states_of
from evalflows.store.layout import identifier, quoted
from evalflows.store.leases import held_leases
from evalflows.store.sql import connect, create_own_marts, viewing
from evalflows.store.store import Store
from evalflows.store.views import grain, is_mart, is_own, meanings, tables_of, view_files

LEASED = frozenset({"experiments", "comparison_sets", "watermarks"})
"""Tables whose `state` depends on which leases are held."""

BYTES_PER_GROUP = "8MB"
"""The size of a row group in exported Parquet: what its reader has in memory at a time."""

STAGED_ROWS = 1_000
"""Rows that are in memory at a time."""

_BEGINNINGS = ", ".join(f"chr({ord(first)})" for first in FORMULA)

MARK = "evalflows_export.json"
"""The file that marks a folder as an export: of which store, in which form, and the state of each view's file."""

Form = Literal["parquet", "csv"]

QUERY_ROWS = 10_000
"""Rows of a row group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A view of the store."""

    name: str
    is_mart: bool  # statements of dashboards find it even while it is empty
    key: tuple[str, ...]  # empty if unknown
    about: str  # what a row is
    columns: dict[str, str]  # with their DuckDB types
    meanings: dict[str, str]  # of columns, as far as they are known
    state: str  # changes with the view's SQL and the files that it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export did with a relation."""

    name: str
    rows: int | None  # None: a view
    is_written: bool  # False: it was up to date, or is left out
    is_left_out: bool = False  # since it is empty


WHOLE = "judgements"
"""The view whose rows are those of `scores` and `comparisons`: it is copied only if it is named."""

INTERNAL = frozenset(
    {
        *("alerts", "attachments", "baselines", "checks", "dataset_versions", "decisions", "erasures", "estimates"),
        *(WHOLE, "limits", "ratings", "resamples", "sentinels", "verdicts", "watched_windows", "watermarks"),
    }
)
"""Tables that marts show better, or that are about the store itself: exported if they are named, or all are wanted."""


def relations(
    store: Store, only: Sequence[str] = (), *, is_all: bool = False, as_views: bool = False
) -> list[Relation]:
    """Return the relations of these names; by default those that are not internal.

    With `is_all`, internal ones too, but for WHOLE unless they become views, which hold no rows. Raise InputError for
    an unknown name.
    """
    with connect(store.layout.root) as catalog:
        columns = _columns(catalog)
        if unknown := sorted({*only} - {*columns}):
            raise InputError(f"export: got {unknown[0]!r}, wanted a view: {hints.list_views().code} lists them")
        now = _Now(store, catalog)
        left_out = INTERNAL if not is_all else frozenset[str]() if as_views else {WHOLE}
        names = only or columns.keys() - left_out
        return [_relation(name, columns[name], now.state_of(name)) for name in columns if name in names]


def stage(store: Store, relation: Relation, path: Path) -> int:
    """Write a relation to a new Parquet file, from one consistent state of the store. Return the number of rows.

    Sums of whole numbers, which DuckDB gives 128 bits, get 64; one that needs more is null. JSON is written as text,
    since readers such as Polars take what Parquet marks as JSON for bytes.
    """
    columns = [_portable(name, kind) for name, kind in relation.columns.items()]
    options = f"format parquet, compression zstd, row_group_size_bytes {quoted(BYTES_PER_GROUP)}"
    return _copy(store, relation, columns, path, options)


def write_csv_file(store: Store, relation: Relation, path: Path) -> int:
    """Write a relation to a new CSV file with a header, in the same way. Return the number of rows.

    Texts that a spreadsheet may take for formulas get a leading apostrophe, as by `csv_cell`. Times are ISO 8601 in
    UTC, lists and structures JSON, null is an empty cell, and an empty text is quoted.
    """
    columns = [f"{_cell(name, kind)} as {identifier(csv_cell(name))}" for name, kind in relation.columns.items()]
    return _copy(store, relation, columns, path, "format csv, header true")


def _copy(store: Store, relation: Relation, columns: Sequence[str], path: Path, options: str) -> int:
    copy = f"copy (select {', '.join(columns)} from {relation.name}) to {quoted(str(path))} ({options})"

    def read() -> int:
        with viewing(store, copy, may_write=True) as catalog:
            # Without order, which no view promises, memory holds a row group and not the whole result.
            catalog.execute("set preserve_insertion_order = false")
            ((count,),) = catalog.execute(copy).fetchall()
            return int(count)

    try:
        return store.steady(read, tables_of(copy))
    except duckdb.Error as error:
        raise InputError(f"export of {relation.name}: {error}") from error


def _columns(catalog: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the views, whichever schema they are in, each with its columns and their types."""
    query = """select schema_name, table_name, column_name, data_type from duckdb_columns()
               where not internal and schema_name <> 'source' order by schema_name <> 'main', table_oid, column_index"""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for schema, name, column, kind in catalog.execute(query).fetchall():
        first, columns = found.setdefault(name, (schema, {}))
        if schema == first:
            columns[column] = kind
    return {name: columns for name, (_, columns) in found.items()}


def _relation(name: str, columns: dict[str, str], state: str) -> Relation:
    path = next((path for path in view_files() if path.stem == name), None)
    first = path.read_text(encoding="utf-8").partition("\n")[0] if path else ""
    told = meanings(name)
    return Relation(
        name=name,
        is_mart=path is not None and is_mart(path),
        key=grain(path) if path else (),
        about=first.removeprefix("-- "),
        columns=columns,
        meanings={column: told[column] for column in columns if column in told},
        state=state,
    )


def _definitions(catalog: duckdb.DuckDBPyConnection) -> list[tuple[str, ...]]:
    """Return the SQL of all views and macros."""
    views = "select schema_name, view_name, sql from duckdb_views() where not internal order by all"
    macros = "select function_name, macro_definition from duckdb_functions() where not internal order by all"
    return [*catalog.execute(views).fetchall(), *catalog.execute(macros).fetchall()]


class _Now:
    """What the rows of views depend on at this moment."""

    def __init__(self, store: Store, catalog: duckdb.DuckDBPyConnection) -> None:
        self._root, self._definitions = store.layout.root, _definitions(catalog)
        self._own = {path.stem for path in view_files() if is_own(path)}
        self._leases = sorted(held_leases(store))
        self._files = sorted(states_of(store.layout, store.filesystem).items())

    def state_of(self, name: str) -> str:
        """Return a hash of all that a view's rows depend on; one of its own where a file's state is unknown.

        The project's views do not depend on the user's marts.
        """
        tables = tables_of(f"from {name}")
        files = [(path, state) for path, state in self._files if path.split("/")[-4] in tables]
        if any(state is None for _, state in files):
            return secrets.token_hex(32)
        definitions = [view for view in self._definitions if name in self._own or view[-2] not in self._own]
        parts = [self._root, definitions, files, self._leases if tables & LEASED else []]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _portable(name: str, kind: str) -> str:
    column = identifier(name)
    if kind in ("HUGEINT", "UHUGEINT"):
        return f"try_cast({column} as bigint) as {column}"
    return f"{column}::varchar as {column}" if kind == "JSON" else column


def staged_rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a Parquet file, with a SQL expression for each column, BATCH at a time. Times are in UTC."""
    selected = ", ".join(f"{expression} as {identifier(name)}" for name, expression in columns.items())
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(f"select {selected} from read_parquet({quoted(str(path))})")
        while rows := connection.fetchmany(STAGED_ROWS):
            yield from rows


def _cell(name: str, kind: str) -> str:
    column = identifier(name)
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"strftime({column} at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    if kind.endswith(("INT", "INTEGER", "FLOAT", "DOUBLE")) or kind.startswith(("DECIMAL", "DATE", "BOOLEAN")):
        return column
    is_nested = kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))
    text = f"to_json({column})::varchar" if is_nested else f"{column}::varchar"
    return f"case when left({text}, 1) in ({_BEGINNINGS}) then chr(39) || {text} else {text} end"


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside the target. What the block wrote there is synced to disk and then takes its name.

    Raise InputError if a file cannot be written; the target is then left as it was.
    """
    temporary = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary.is_file():
            temporary.unlink()


def write_whole(target: Path, content: str | bytes) -> None:
    """Write a file of text or bytes, whole or not at all. Raise InputError if it cannot be written."""
    with whole_file(target) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What an earlier export wrote under a name."""

    state: str
    rows: int | None  # None: a view


def export_views(store: Store, target: Path, *, is_all: bool = False) -> list[Exported]:
    """Write a DuckDB file with the views of the store as views in `main`, which read the store at query time.

    Internal tables are there with `is_all`. A file that has these views is left as it is. Raise InputError if the store
    is no folder, if there is a file of something else, and if the file cannot be written.
    """
    if not store.layout.is_local:
        raise InputError(f"{target}: got views of an object store, which few BI tools can read, wanted --copy")
    root = store.layout.root
    before, wanted = _read_kept(target, root), relations(store, is_all=is_all, as_views=True)
    names = {relation.name for relation in wanted}
    kept = {name: _Kept(_views_state(), None) for name in names}
    is_written = kept != before
    if is_written:
        with whole_file(target) as temporary:
            try:
                write_views(temporary, root=root)
                with duckdb.connect(str(temporary)) as connection:
                    connection.execute(FIND_STAGING)
                    create_own_marts(connection)
                    for path in view_files():
                        if path.stem in names and not is_mart(path):
                            connection.execute(
                                f"create view if not exists main.{path.stem} as from staging.{path.stem}"
                            )
                    _describe(connection, "view", wanted, root, kept)
            except duckdb.Error as error:
                raise InputError(f"{target}: cannot be written: {error}") from error
    return [Exported(name=relation.name, rows=None, is_written=is_written) for relation in wanted]


def _views_state() -> str:
    """Return what changes with the views."""
    own = "\n".join(f"{path.stem}\n{path.read_text(encoding='utf-8')}" for path in view_files() if is_own(path))
    return hashlib.sha256(f"{views_key()}\n{own}".encode()).hexdigest()


def export_tables(store: Store, target: Path, only: Sequence[str] = (), *, is_all: bool = False) -> list[Exported]:
    """Write a DuckDB file with the views of the store, or those of these names, as tables in `main`.

    Internal tables and empty ones, but for marts, are left out unless they are named or `is_all`. Tables whose rows
    cannot have changed are taken from the file that is there; if none has, it is left as it is. Raise InputError as
    `export_views`, and for an unknown name.
    """
    root = store.layout.root
    before, wanted = _read_kept(target, root), relations(store, only, is_all=is_all)
    with_empty = is_all or bool(only)
    unchanged = {table.name for table in wanted if table.name in before and before[table.name].state == table.state}
    kept = {name: before[name] for name in unchanged}
    if len(unchanged) < len(wanted) or kept != before:
        with duckdb.connect() as connection, _database(target, connection) as name:
            if unchanged:
                connection.execute(f"attach {quoted(str(target))} as before (read_only)")
            connection.execute(f"use {name}")
            for table in wanted:
                rows = _fill(
                    connection, store, table, f"before.main.{identifier(table.name)}" if table.name in kept else None
                )
                if rows or with_empty or table.is_mart:
                    kept[table.name] = _Kept(table.state, rows)
                else:
                    connection.execute(f"drop table main.{identifier(table.name)}")
                    kept.pop(table.name, None)
            _describe(connection, "table", [table for table in wanted if table.name in kept], root, kept)
            connection.execute("use memory")
    return _exported(wanted, kept, unchanged)


def _exported(wanted: Sequence[Relation], kept: Mapping[str, _Kept], unchanged: Collection[str]) -> list[Exported]:
    found = [(table.name, kept.get(table.name)) for table in wanted]
    return [
        Exported(name=name, rows=0, is_written=False, is_left_out=True)
        if known is None
        else Exported(name=name, rows=known.rows, is_written=name not in unchanged)
        for name, known in found
    ]


def _fill(connection: duckdb.DuckDBPyConnection, store: Store, relation: Relation, before: str | None) -> int:
    """Create the table of a relation, from one that is up to date, else from the store. Return its number of rows."""
    with TemporaryDirectory(prefix="evalflows-") as scratch:
        source = before
        if source is None:
            staged = Path(scratch) / "staged.parquet"
            stage(store, relation, staged)
            source = f"read_parquet({quoted(str(staged))})"
        columns = ", ".join(
            f"{column}::json as {column}" if kind == "JSON" else column
            for column, kind in ((identifier(name), kind) for name, kind in relation.columns.items())
        )
        create = f"create table main.{identifier(relation.name)} as select {columns} from {source}"
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
    """Say what the rows and columns of each relation are, and note of which store and state they are."""
    for relation in wanted:
        name = f"main.{identifier(relation.name)}"
        connection.execute(f"comment on {kind} {name} is {quoted(relation.about)}")
        for column, meaning in relation.meanings.items():
            connection.execute(f"comment on column {name}.{identifier(column)} is {quoted(meaning)}")
    connection.execute("create schema if not exists source")
    connection.execute("create table source.exported (name varchar, state varchar, rows bigint, store varchar)")
    noted = [(name, entry.state, entry.rows, root) for name, entry in kept.items()]
    connection.executemany("insert into source.exported values (?, ?, ?, ?)", noted)


def _read_kept(target: Path, root: str) -> dict[str, _Kept]:
    """Return what an earlier export of the same store wrote; nothing if there is no file.

    Raise InputError for a file of something else, and for one that another program writes.
    """
    if not target.exists():
        return {}
    if not target.is_file():
        raise InputError(f"{target}: got a folder, wanted a file")
    if Path(f"{target}.wal").exists():  # DuckDB would apply its changes to the new file
        raise InputError(f"{target}: another program is writing it ({target}.wal exists), wanted a closed file")
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


def export_folder(
    store: Store, folder: Path, form: Form, only: Sequence[str] = (), *, is_all: bool = False
) -> list[Exported]:
    """Write one file per view, `NAME.parquet` or `NAME.csv`; leave files alone whose view is unchanged.

    Internal tables and empty ones, marts apart, are left out unless they are named or `is_all`. Unless only some are
    wanted, files of an earlier export are removed whose view is gone. Each file is written whole or not at all.

    Raise InputError if the folder holds anything but an export of this store in this form, for an unknown name, and if
    a file cannot be written.
    """
    if folder.is_dir():  # refused at once, if it is
        _files(folder, store.layout.root, form)
    wanted, with_empty = relations(store, only, is_all=is_all), is_all or bool(only)
    with _lock_folder(folder):
        files = _files(folder, store.layout.root, form)
        unchanged = {table.name for table in wanted if _is_unchanged(folder, form, table, files)}
        if not only:
            _remove(folder, form, files, files.keys() - {table.name for table in wanted})
        stale = [table for table in wanted if table.name not in unchanged]
        for table in stale:  # so that an export that is interrupted is not taken for a finished one
            files.pop(table.name, None)
        _write_mark(folder, store.layout.root, form, files)
        empty: set[str] = set()
        for table in stale:
            files[table.name] = _Kept(table.state, _write(store, table, folder / f"{table.name}.{form}", form))
            if files[table.name].rows == 0 and not (with_empty or table.is_mart):
                empty.add(table.name)
        _remove(folder, form, files, empty)
        _write_mark(folder, store.layout.root, form, files)
    return _exported(wanted, files, unchanged)


def _remove(folder: Path, form: Form, files: dict[str, _Kept], names: Iterable[str]) -> None:
    """Remove the files of an earlier export whose views no longer exist. Raise InputError if one cannot be removed."""
    for name in names:
        if Path(name).name == name:  # never outside the folder, whatever its mark says
            target = folder / f"{name}.{form}"
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{target}: cannot be removed: {error.strerror or error}") from error
        del files[name]


def _write(store: Store, relation: Relation, target: Path, form: Form) -> int:
    with whole_file(target) as temporary:
        return (stage if form == "parquet" else write_csv_file)(store, relation, temporary)


def _is_unchanged(folder: Path, form: Form, relation: Relation, files: dict[str, _Kept]) -> bool:
    known = files.get(relation.name)
    return known is not None and known.state == relation.state and (folder / f"{relation.name}.{form}").is_file()


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder if it is missing, and lock it. Raise InputError if that fails, or if it is locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        if not try_lock(descriptor):
            raise InputError(f"{folder}: another export is writing there; wait until it has ended, then try again")
        yield
    finally:
        os.close(descriptor)


def _files(folder: Path, root: str, form: Form) -> dict[str, _Kept]:
    """Return the files of an earlier export; none for an empty folder. Raise InputError for anything else."""
    if not any(folder.iterdir()):
        return {}
    mark: Any = None
    with suppress(OSError, ValueError):
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    if not isinstance(mark, dict) or not isinstance(mark.get("files"), dict):
        raise InputError(f"{folder}: got a folder with other files, wanted a new folder, or one of an earlier export")
    if (mark.get("store"), mark.get("format")) != (root, form):
        raise InputError(
            f"{folder}: got an export of {mark.get('store')} as {mark.get('format')}, wanted one of {root} as {form}"
        )
    return {name: _Kept(**known) for name, known in mark["files"].items()}


def _write_mark(folder: Path, root: str, form: Form, files: dict[str, _Kept]) -> None:
    listed = {name: asdict(file) for name, file in sorted(files.items())}
    text = json.dumps({"store": root, "format": form, "files": listed}, indent=1)
    with suppress(OSError):
        if (folder / MARK).read_text(encoding="utf-8") == text:
            return
    write_whole(folder / MARK, text)


def write_query(relation: duckdb.DuckDBPyRelation, target: Path) -> None:
    """Write the rows of a query to a Parquet file.

    Raise InputError if the file cannot be written, and for a type that Parquet does not have.
    """
    with whole_file(target) as temporary, relation.to_arrow_reader(QUERY_ROWS) as batches:
        try:
            with pq.ParquetWriter(temporary, batches.schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"sql: {error}; wanted columns of types that Parquet has") from error
