"""The catalog as one DuckDB file beside the store: every view over the store's files, bound once.

DuckDB takes most of a second to bind all views, and some hundredths to copy them from a file. Any DuckDB since 1.1
opens the file too. It holds no rows, and is made anew when the views are others or the store has moved.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

import duckdb

from evalflows.store.damage import Damages
from evalflows.store.layout import Layout, every_row, quoted
from evalflows.store.parquet_files import file_mode
from evalflows.store.schemas import TABLES
from evalflows.store.views import HELD_LEASES, view_statements

STORAGE_VERSION = "v1.0.0"
"""Every DuckDB since 1.0 opens such a file; the format that DuckDB 2.0 writes by default, no older one."""

FIND_STAGING = "set search_path = 'main,staging'"


def create_catalog(
    connection: duckdb.DuckDBPyConnection, layout: Layout, damages: Damages, *, with_packed: bool
) -> None:
    """Create every view over the files of a store in an empty database, without the owners of damaged files.

    The views are copied from the store's catalog, which is written if there is none, or another one. Where it cannot be
    written, and where files are damaged, they are bound here.
    """
    path = catalog_path(layout, with_packed=with_packed)
    if damages.of() or not (_is_copied(connection, path, layout) or _is_made(connection, path, layout)):
        for statement in _statements(layout.root, damages, with_packed):
            connection.execute(statement)
    connection.execute(HELD_LEASES)
    connection.execute(FIND_STAGING)


def catalog_path(layout: Layout, *, with_packed: bool = True) -> Path:
    """Return the path of a store's catalog. As long as a store has no packed files, another one is quicker to query."""
    return Path(layout.root) / ("catalog.duckdb" if with_packed else _UNPACKED)


_UNPACKED = "catalog-unpacked.duckdb"


def set_root(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    """Let the views of a connection read the files below another root."""
    connection.execute(_root(root))


def _root(root: str) -> str:
    return f"create or replace macro source.root() as {quoted(root)}"


def _is_copied(connection: duckdb.DuckDBPyConnection, path: Path, layout: Layout) -> bool:
    """Copy the views of a file. Return False, without a change, if it is not there or has other views."""
    if not path.exists():
        return False
    try:
        connection.execute(f"attach {quoted(str(path))} as catalog_file (read_only)")
    except duckdb.Error:  # another program writes it, or it is none
        return False
    try:
        ((key, root),) = connection.execute(
            "select catalog_file.source.views_key(), catalog_file.source.root()"
        ).fetchall()
        if key != views_key(path.name != _UNPACKED):
            return False
        connection.execute("copy from database catalog_file to memory")
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    finally:
        connection.execute("detach catalog_file")
    if root != layout.root:  # the store has moved, or is a copy
        set_root(connection, layout.root)
        _write(path, layout, partial(shutil.copyfile, path))
    return True


_KEY_AND_ROOT = "select catalog_file.source.views_key(), catalog_file.source.root()"


def _is_made(connection: duckdb.DuckDBPyConnection, path: Path, layout: Layout) -> bool:
    _write(path, layout, partial(write_views, root=layout.root, with_packed=path.name != _UNPACKED))
    return _is_copied(connection, path, layout)


def _write(path: Path, layout: Layout, fill: Callable[[Path], object]) -> None:
    """Write a catalog of this root, whole or not at all: not where the folder or another program forbids it."""
    if path.with_name(f"{path.name}.wal").exists():  # of another program; DuckDB would apply it to the new file
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with suppress(OSError, duckdb.Error):
        fill(temporary)
        with duckdb.connect(str(temporary)) as connection:
            set_root(connection, layout.root)
        temporary.chmod(file_mode(Path(layout.root)))
        temporary.replace(path)
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def write_views(path: Path, *, root: str, with_packed: bool = True) -> None:
    """Write a DuckDB file with every view over the files below a root."""
    with duckdb.connect(str(path), config={"storage_compatibility_version": STORAGE_VERSION}) as connection:
        for statement in _statements(root, Damages(), with_packed):
            connection.execute(statement)
        connection.execute(f"create macro source.views_key() as {quoted(views_key(with_packed))}")


@lru_cache(2)
def views_key(with_packed: bool = True) -> str:
    """Return what tells the views of one version of evalflows from those of another."""
    return hashlib.sha256("\n".join(_statements("", Damages(), with_packed)).encode()).hexdigest()


def _statements(root: str, damages: Damages, with_packed: bool) -> Iterator[str]:
    """Yield the SQL that creates all views."""
    yield "create schema source; create schema staging"
    yield _root(root)
    yield FIND_STAGING
    for name, table in TABLES.items():
        left_out = damages.owners(table.owner), damages.packed_files(name)
        yield f"create view source.{name} as {every_row(name, *left_out, with_packed=with_packed)}"
    yield from view_statements()
