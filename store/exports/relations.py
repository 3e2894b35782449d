"""The relations that exports hold: every view of the store, with its key, its columns and the state of its files."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from evalflows.specs.errors import InputError
from evalflows.store.catalog import ask, connect, grain, tables_of, view_files
from evalflows.store.file_states import states_of
from evalflows.store.layout import identifier, quoted
from evalflows.store.leases.lease import held_leases
from evalflows.store.parquet import Store
from evalflows.store.views import is_own

LEASED = frozenset({"experiments", "comparison_sets", "watermarks"})
"""Tables whose `state` depends on which leases are held."""

BYTES_PER_GROUP = "8MB"
"""The size of a row group in exported Parquet: what its reader has in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A view of the store."""

    name: str
    key: tuple[str, ...]  # empty if unknown
    about: str  # what a row is
    columns: dict[str, str]  # with their DuckDB types
    state: str  # changes with the view's SQL and the files that it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export did with a relation."""

    name: str
    rows: int | None  # None: a view
    is_written: bool  # False: it was up to date


def relations(store: Store, only: Sequence[str] = ()) -> list[Relation]:
    """Return the relations of these names, or all. Raise InputError for an unknown name."""
    with connect(store.layout.root) as catalog:
        columns = _columns(catalog)
        if unknown := sorted({*only} - {*columns}):
            raise InputError(f"export: got {unknown[0]!r}, wanted a view: `evalflows sql` lists them")
        now = _Now(store, catalog)
        return [_relation(name, columns[name], now.state_of(name)) for name in columns if not only or name in only]


def stage(store: Store, relation: Relation, path: Path) -> int:
    """Write a relation to a new Parquet file, from one consistent state of the store. Return the number of rows.

    Sums of whole numbers, which DuckDB gives 128 bits, get 64; one that needs more is null.
    """
    columns = ", ".join(_portable(name, kind) for name, kind in relation.columns.items())
    options = f"format parquet, compression zstd, row_group_size_bytes {quoted(BYTES_PER_GROUP)}"
    copy = f"copy (select {columns} from {relation.name}) to {quoted(str(path))} ({options})"
    # Without order, which no view promises, memory holds a row group and not the whole result.
    try:
        *_, ((count,),) = ask(store, ("set preserve_insertion_order = false", ()), (copy, ()))
    except duckdb.Error as error:
        raise InputError(f"export of {relation.name}: {error}") from error
    return int(count)


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
    key = grain(path) if path else ()
    return Relation(name=name, key=key, about=first.removeprefix("-- "), columns=columns, state=state)


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
        definitions = [one for one in self._definitions if name in self._own or one[-2] not in self._own]
        parts = [self._root, definitions, files, self._leases if tables & LEASED else []]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _portable(name: str, kind: str) -> str:
    column = identifier(name)
    return f"try_cast({column} as bigint) as {column}" if kind in ("HUGEINT", "UHUGEINT") else column
