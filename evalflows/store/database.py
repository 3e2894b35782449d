"""DuckDB over a store's files: its catalog of views, and connections that can only read.

DuckDB takes most of a second to bind all views, and some hundredths to copy them from a file. Any DuckDB since 1.1
opens the file too. It holds no rows, and is made anew when the views are others or the store has moved.

DuckDB's settings allow a folder for reading and writing alike. A restricted connection therefore has no local file
system at all, only `read_only_files.py`, which has no way to write.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import atexit
import hashlib
import os
import resource
import secrets
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path

import duckdb
from fsspec import AbstractFileSystem

from evalflows.specs.errors import InputError
from evalflows.specs.home import home_root
from evalflows.store.copies import FIND_COPIES, NamedFiles, OwnerCopies, TableCopies
from evalflows.store.files import file_mode
from evalflows.store.layout import Layout, every_row, quoted
from evalflows.store.packs import Damages
from evalflows.store.schemas import TABLES
from evalflows.store.views import HELD_LEASES, view_statements

MEMORY_SHARE = 0.5
"""The share of the machine's memory that a restricted query may use."""


def restrict(connection: duckdb.DuckDBPyConnection, memory_bytes: int | None = None) -> None:
    """Take every file system from a connection but those that it has registered, for good: the settings are locked.

    The views must exist already. It has no temporary folder, so a query that needs more than `memory_bytes` fails, by
    default more than half of the machine's memory.
    """
    memory = f"{MEMORY_SHARE:.0%}" if memory_bytes is None else f"{memory_bytes} bytes"
    for setting in (
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "temp_directory = ''",
        f"memory_limit = '{memory}'",
        "disabled_filesystems = 'LocalFileSystem'",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    """Interrupt the connection's query after `seconds`, and raise InputError then. None: no limit."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise InputError(f"sql: stopped after {seconds:g} s, wanted a faster query or a longer timeout") from error
    finally:
        timer.cancel()
        timer.join()  # its thread holds the connection, which DuckDB would report as a leak if the process ended before


def memory_limit_bytes() -> int:
    """Return the memory that a restricted query may use."""
    with duckdb.connect() as connection:  # it knows the limits of containers
        connection.execute(f"set memory_limit = '{MEMORY_SHARE:.0%}'")
        ((text,),) = connection.execute("select current_setting('memory_limit')").fetchall()
    number, unit = text.split()
    return int(float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit))


def peak_memory_bytes() -> int:
    """Return the most memory that this process has used so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


KEPT_CATALOGS = 7
"""How many files of views a user's folder keeps beside a new one: two per version of evalflows, of 1.3 MB."""

STORAGE_VERSION = "v1.0.0"
"""Every DuckDB since 1.0 opens such a file; the format that DuckDB 2.0 writes by default, no older one."""

FIND_STAGING = "set search_path = 'main,staging'"


def create_catalog(
    connection: duckdb.DuckDBPyConnection, layout: Layout, damages: Damages, *, with_packed: bool
) -> None:
    """Create every view over the files of a store in an empty database, without the owners of damaged files.

    The views are copied from the store's catalog, which is written if there is none, or another one. Where it cannot be
    written, they are bound here.
    """
    path = catalog_path(layout, with_packed=with_packed)
    if not (_is_copied(connection, path, layout) or _is_made(connection, path, layout)):
        for statement in _statements(layout.root, with_packed):
            connection.execute(statement)
    for name, table in TABLES.items():
        left_out = damages.owners(table.owner), damages.packed_files(name)
        if any(left_out):
            connection.execute(_source_view(name, *left_out, with_packed=with_packed))
    connection.execute(HELD_LEASES)
    connection.execute(FIND_STAGING)


def catalog_path(layout: Layout, *, with_packed: bool = True) -> Path:
    """Return the path of a store's catalog. As long as a store has no packed files, another one is quicker to query."""
    return Path(layout.root) / ("catalog.duckdb" if with_packed else _UNPACKED)


_UNPACKED = "catalog-unpacked.duckdb"


def keep_catalog(layout: Layout) -> None:
    """Write the catalog that other programs open, unless the store has one. It finds packed files, whenever they come.

    Of an object store, only a mirror has one.
    """
    path = catalog_path(layout)
    if layout.is_local and not path.exists():
        _write(path, layout, partial(write_views, root=layout.root))


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
        ((key, root),) = connection.execute(_KEY_AND_ROOT).fetchall()
        if key != views_key(path.name != _UNPACKED):
            return False
        connection.execute("copy from database catalog_file to memory")
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    finally:
        connection.execute("detach catalog_file")
    if root != layout.root:  # the store has moved, or is a copy
        set_root(connection, layout.root)
        _write(path, layout, partial(_copied, path, root=layout.root))
        _renew_kept(path, layout)
    return True


def _renew_kept(path: Path, layout: Layout) -> None:
    """Write the catalog of other programs again, after another one of the store was written."""
    kept = catalog_path(layout)
    if path != kept and kept.exists():
        _write(kept, layout, partial(write_views, root=layout.root))


_KEY_AND_ROOT = "select catalog_file.source.views_key(), catalog_file.source.root()"


def _is_made(connection: duckdb.DuckDBPyConnection, path: Path, layout: Layout) -> bool:
    _write(path, layout, partial(write_views, root=layout.root, with_packed=path.name != _UNPACKED))
    _renew_kept(path, layout)
    return _is_copied(connection, path, layout)


def _write(path: Path, layout: Layout, fill: Callable[[Path], object]) -> None:
    """Write a catalog of this root, whole or not at all: not where the folder or another program forbids it."""
    if path.with_name(f"{path.name}.wal").exists():  # of another program; DuckDB would apply it to the new file
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with suppress(OSError, duckdb.Error):
        fill(temporary)
        temporary.chmod(file_mode(Path(layout.root)))
        temporary.replace(path)
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _copied(file: Path, path: Path, *, root: str) -> str:
    """Copy a file of views, which then read the files below a root. Return their key."""
    shutil.copyfile(file, path)
    with duckdb.connect(str(path)) as connection:
        set_root(connection, root)
        ((key,),) = connection.execute("select source.views_key()").fetchall()
    return str(key)


def write_views(path: Path, *, root: str, with_packed: bool = True) -> None:
    """Write a DuckDB file with every view over the files below a root.

    It is a copy of the user's file of these views, which is made if there is none.
    """
    key = views_key(with_packed)
    bound = home_root() / "catalogs" / f"{key[:24]}-{duckdb.__version__}.duckdb"
    try:
        if _copied(bound, path, root=root) == key:
            return
    except (OSError, duckdb.Error):  # there is none, or it is damaged
        pass
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path), config={"storage_compatibility_version": STORAGE_VERSION}) as connection:
        for statement in _statements(root, with_packed):
            connection.execute(statement)
        connection.execute(f"create macro source.views_key() as {quoted(key)}")
    with suppress(OSError):
        bound.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        older = sorted(bound.parent.glob("*.duckdb"), key=lambda file: file.stat().st_mtime)[:-KEPT_CATALOGS]
        for file in older:
            file.unlink()
        temporary = bound.with_suffix(f".{secrets.token_hex(6)}.tmp")
        shutil.copyfile(path, temporary)
        temporary.replace(bound)


@lru_cache(2)
def views_key(with_packed: bool = True) -> str:
    """Return what tells the views of one version of evalflows from those of another."""
    return hashlib.sha256("\n".join(_statements("", with_packed)).encode()).hexdigest()


def _statements(root: str, with_packed: bool) -> Iterator[str]:
    """Yield the SQL that creates all views."""
    yield "create schema source; create schema staging"
    yield _root(root)
    yield FIND_STAGING
    yield from (_source_view(name, with_packed=with_packed) for name in TABLES)
    yield from view_statements()


def _source_view(table: str, *left_out: Collection[str], with_packed: bool) -> str:
    """Return the SQL of a table's rows, without these owners and packed files."""
    return f"create or replace view source.{table} as {every_row(table, *left_out, with_packed=with_packed)}"


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
    connection.execute("set global timezone = 'UTC'")  # also that of cursors
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
        self._copies: dict[tuple[int, str, int, bool], TableCopies] = {}  # beside some of them
        self._named: dict[tuple[int, str, int, bool], NamedFiles] = {}  # likewise
        self._lock = threading.RLock()  # making a database may find damaged files
        self._memory = AS_DUCKDB
        self._limits: dict[tuple[int, str, int, bool], str] = {}  # of the memory that each database may use

    def cursor(
        self,
        layout: Layout,
        damages: Damages,
        is_packed: bool,
        make: Callable[[], duckdb.DuckDBPyConnection],
        states: Mapping[str, object] | None = None,
        tables: Collection[str] = (),
        owners: OwnerCopies | None = None,
        *,
        alone: bool = False,
    ) -> duckdb.DuckDBPyConnection:
        """Return a new connection to the database of a root.

        `make` creates it if needed, if damage was found, and when the store has its first packed files. With `states`
        of local files, `tables` that are small are copies in memory of just these; with `owners`, the others have only
        the rows of these, in memory too. If these files, all sealed, are `alone`, `tables` have the rows of no others.
        """
        with self._lock:
            key = (os.getpid(), layout.root, damages.version, is_packed)  # a database does not survive a fork
            if key not in self._databases:
                if len(self._databases) >= MAX_DATABASES:
                    oldest = next(iter(self._databases))
                    self._copies.pop(oldest, None)
                    self._named.pop(oldest, None)
                    self._limits.pop(oldest, None)
                    self._databases.pop(oldest)
                self._databases[key] = make()
            views = self._databases[key]
            if alone and key not in self._named:
                self._named[key] = NamedFiles(views, layout)
            elif states is not None and not alone and key not in self._copies:
                self._copies[key] = TableCopies(views, layout, has_damage=bool(damages.of()))
            cursor, copies, named = views.cursor(), self._copies.get(key), self._named.get(key)
            if self._limits.get(key) != self._memory:
                cursor.execute(f"set memory_limit = '{self._memory}'")
                self._limits[key] = self._memory
        if states is not None and alone and named is not None:
            named.find(cursor, states, tables)
        elif states is not None and copies is not None:
            copies.follow(states, tables)
            cursor.execute(owners.follow(views, states, tables, copies.tables) if owners else FIND_COPIES)
        else:
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
            self._copies.clear()
            self._named.clear()
            self._limits.clear()
            self._databases.clear()


shared = Shared()
atexit.register(shared.close)
