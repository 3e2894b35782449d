"""DuckDB over a store's files: its catalog of views, and connections that can only read.

DuckDB takes most of a second to bind all views, and some hundredths to copy them from a file in the user's own folder.
The catalog in the store is for other programs: any DuckDB since 1.1 opens it. It holds no rows.
"""

# DuckDB's settings allow a folder for reading and writing alike. A restricted connection therefore has no local file
# system at all, only `read_only_files.py`, which has no way to write.

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import atexit
import hashlib
import os
import re
import resource
import secrets
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.specs.home import keep_note, note, private_folder
from evalflows.store.arrow import duckdb
from evalflows.store.copies import FIND_COPIES, NamedFiles, OwnerCopies, TableCopies
from evalflows.store.damages import Damages
from evalflows.store.files import file_mode
from evalflows.store.layout import Layout, StoredFile, every_row, identifier, quoted, rows_in
from evalflows.store.local_files import LocalFiles
from evalflows.store.marker import restore_empties
from evalflows.store.records import FINAL
from evalflows.store.schemas import TABLES
from evalflows.store.summaries import VIEW, summary_view
from evalflows.store.views import HELD_LEASES, view_statements

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MEMORY_SHARE = 0.5
"""The share of the machine's memory that a restricted query may use."""

KEPT_CATALOGS = 7
"""How many files of views a user's folder keeps beside a new one: two per version of evalflows, of 1.3 MB."""

STORAGE_VERSION = "v1.0.0"
"""Every DuckDB since 1.0 opens such a file; the format that DuckDB 2.0 writes by default, no older one."""

FIND_STAGING = "set search_path = 'main,staging'"

_FORMAT: dict[str, Any] = {"storage_compatibility_version": STORAGE_VERSION}

KNOWN_CATALOGS = "known_catalogs"
"""The folder of the user that notes which catalogs are as this program writes them."""

_BOTH = ("memory", "theirs")

MAX_DATABASES = 4
LITTLE, AS_DUCKDB = "160MB", "80%"
"""Limits of the memory of a database. With the first, summing up half a million values takes half as long again."""


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
        "python_enable_replacements = false",  # variables of whoever asks
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


def create_catalog(
    connection: duckdb.DuckDBPyConnection, root: str, with_packed: bool, replaced: Mapping[str, str]
) -> None:
    """Create every view over the files below a root in an empty database; of some tables, over the rows of this SQL.

    As long as a store has no packed files, views without them are quicker to query.
    """
    _create_views(connection, root, with_packed)
    for name, rows in replaced.items():
        connection.execute(f"create or replace view source.{name} as {rows}")
    connection.execute(HELD_LEASES)
    connection.execute(FIND_STAGING)


def _create_views(connection: duckdb.DuckDBPyConnection, root: str, with_packed: bool) -> None:
    """Create this program's views in an empty database, as a copy of the user's file of them where that can be kept.

    No file of the store gives them: whoever can write to the store could replace it.
    """
    if _copy_kept(connection, with_packed):
        set_root(connection, root)
    else:
        for statement in _statements(root, with_packed):
            connection.execute(statement)


def set_root(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    """Let the views of a connection read the files below another root."""
    connection.execute(_root(root))


def _root(root: str) -> str:
    return f"create or replace macro source.root() as {quoted(root)}"


def _copy_kept(connection: duckdb.DuckDBPyConnection, with_packed: bool) -> bool:
    """Copy the views of the user's file, which is made if there is none. Return False if that cannot be done."""
    if (folder := private_folder("catalogs")) is None:
        return False
    path = folder / f"{_views_hash(with_packed)[:24]}-{duckdb.__version__}.duckdb"
    if _is_copied(connection, path):
        return True
    with suppress(OSError, duckdb.Error), _whole(path) as temporary, tempfile.TemporaryDirectory() as empty:
        restore_empties(Layout(empty), LocalFiles(), all_of_them=True)  # types of columns come from no store either
        with duckdb.connect(str(temporary), config=_FORMAT) as kept:
            for statement in _statements(empty, with_packed):
                kept.execute(statement)
            set_root(kept, "")
        for older in sorted(folder.glob("*.duckdb"), key=lambda file: file.stat().st_mtime)[:-KEPT_CATALOGS]:
            older.unlink()
    return _is_copied(connection, path)


def _is_copied(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Copy a file of views into an empty database. Return False, without a change, if it is not there or damaged."""
    ((name,),) = connection.execute("select current_database()").fetchall()
    try:
        connection.execute(f"attach {quoted(str(path))} as kept (read_only)")
    except duckdb.Error:
        return False
    try:
        connection.execute(f"copy from database kept to {identifier(name)}")
    except duckdb.Error:
        return False
    finally:
        connection.execute("detach kept")
    return True


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield the path of a file that gets this name at the end of the block, or is removed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_views(path: Path, *, root: str) -> None:
    """Write a DuckDB file with every view over the files below a root, for other programs."""
    with duckdb.connect(str(path), config=_FORMAT) as connection:
        _create_catalog_of_others(connection, root)


def _create_catalog_of_others(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    _create_views(connection, root, with_packed=True)
    connection.execute(f"create or replace macro source.views_key() as {quoted(views_key())}")


def views_key() -> str:
    """Return what tells the views of one version of evalflows and DuckDB from those of another."""
    return f"{_views_hash(with_packed=True)}-{duckdb.__version__}"


@lru_cache(2)
def _views_hash(with_packed: bool) -> str:
    return hashlib.sha256("\n".join(_statements("", with_packed)).encode()).hexdigest()


def catalog_path(layout: Layout) -> Path:
    """Return the path of the catalog that a store has for other programs. Nothing of ours reads it."""
    return Path(layout.root) / "catalog.duckdb"


def keep_catalog(layout: Layout) -> None:
    """Write the catalog for other programs, unless the store has it. It finds packed files, whenever they come.

    An object store has none. Where the folder or another program forbids it, nothing is written.
    """
    path = catalog_path(layout)
    name, state = hashlib.sha256(os.fsencode(path)).hexdigest(), _state_of(path)
    if not layout.is_local or (state and note(KNOWN_CATALOGS, name) == state):  # a comparison takes longer than queries
        return
    problem = catalog_problem(layout)
    is_written = (problem is not None or state is None) and _is_written(path, layout)
    if problem is not None and not problem.is_outdated:
        print_note(f"{path}: {problem.text}; {'written again' if is_written else 'it cannot be written again'}")
    if (problem is None or is_written) and (state := _state_of(path)) is not None:
        keep_note(KNOWN_CATALOGS, name, state)


def _is_written(path: Path, layout: Layout) -> bool:
    """Write a catalog. Return False where the folder or another program forbids it."""
    if path.with_name(f"{path.name}.wal").exists():  # of another program; DuckDB would apply it to the new file
        return False
    with suppress(OSError, duckdb.Error):
        with _whole(path) as temporary:
            write_views(temporary, root=layout.root)
            temporary.chmod(file_mode(Path(layout.root)))
        return True
    return False


def _state_of(path: Path) -> str | None:
    """Return what changes with a file, and with the views that it has to have; None if there is no file."""
    try:
        state = path.lstat()
    except OSError:
        return None
    return f"{state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {views_key()}"


@dataclass(frozen=True, slots=True)
class CatalogProblem:
    """How a store's catalog differs from the one that this program writes."""

    text: str
    is_outdated: bool  # written by another version, or before the store was moved, as far as the file says


def catalog_problem(layout: Layout) -> CatalogProblem | None:
    """Return how a store's catalog differs from the one that this program writes; None if it does not, or if there is
    none.

    The file is not trusted: its definitions are read as texts, and nothing of it runs.
    """
    path = catalog_path(layout)
    if not os.path.lexists(path):
        return None
    if not stat.S_ISREG(path.lstat().st_mode):  # to open a pipe would take for ever
        return CatalogProblem("is not a regular file", is_outdated=False)
    with duckdb.connect() as connection:
        _create_catalog_of_others(connection, layout.root)
        try:
            connection.execute(f"attach {quoted(str(path))} as theirs (type duckdb, read_only)")
            connection.execute("set enable_external_access = false")
            ours, theirs = (dict(connection.execute(_DEFINITIONS, [name] * 6).fetchall()) for name in _BOTH)
        except duckdb.Error as error:
            first, *_ = str(error).splitlines()
            return CatalogProblem(f"cannot be read: {first}", is_outdated=False)
    others = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not others:
        return None
    if _VIEWS_KEY in others:
        return CatalogProblem("its views are those of another version of evalflows or DuckDB", is_outdated=True)
    if others == [_ROOT] and (literal := re.fullmatch(r"\[\]('(?:[^']|'')*')", theirs.get(_ROOT, ""))):
        return CatalogProblem(f"its views read the folder {literal[1]}", is_outdated=True)
    listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return CatalogProblem(f"differs from what this program writes in {listed}", is_outdated=False)


_VIEWS_KEY, _ROOT = "macro source.views_key", "macro source.root"
_DEFINITIONS = """
select concat('view ', schema_name, '.', view_name), sql from duckdb_views() where database_name = $1 and not internal
union all
select concat('macro ', schema_name, '.', function_name),
       string_agg(concat(parameters::varchar, macro_definition), '; ' order by parameters::varchar)
from duckdb_functions() where database_name = $2 and not internal group by 1
union all
select concat('table ', schema_name, '.', table_name), sql from duckdb_tables() where database_name = $3
union all
select concat('schema ', schema_name), '' from duckdb_schemas() where database_name = $4 and not internal
union all
select concat('type ', schema_name, '.', type_name), '' from duckdb_types() where database_name = $5 and not internal
union all
select concat('sequence ', schema_name, '.', sequence_name), sql from duckdb_sequences() where database_name = $6
"""


def _statements(root: str, with_packed: bool) -> Iterator[str]:
    """Yield the SQL that creates all views."""
    yield "create schema source; create schema staging"
    yield _root(root)
    yield FIND_STAGING
    for name in TABLES:
        yield f"create or replace view source.{name} as {every_row(name, with_packed=with_packed)}"
    yield from view_statements()


def connect_source(
    layout: Layout,
    damages: Damages,
    with_packed: bool,
    files: AbstractFileSystem | None = None,
    *,
    with_final: bool = True,
    known: Mapping[str, Collection[StoredFile]] | None = None,
    views: Collection[str] = (),
) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB with the catalog's views over a folder, without the owners of damaged files.

    `files` opens the store's files, if not the local file system does. Without `with_final`, the views have no rows of
    single final examples. `known` has all files of some tables, for as long as the connection is used, and `views` are
    those that it is for.
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
    prefix, replaced = "" if files is None else f"{files.protocol}://", dict[str, str]()
    for name, table in TABLES.items():
        left_out = damages.owners(table.owner), damages.packed_files(name)
        if any(left_out):
            replaced[name] = every_row(name, *left_out, with_packed=with_packed)
        elif known and name in known:
            replaced[name] = rows_in(layout, name, known[name], prefix)
    create_catalog(connection, f"{prefix}{layout.root}", with_packed, replaced)
    is_whole = with_final and not damages.of()
    if VIEW in views and is_whole and known and (view := summary_view(layout, known, prefix)):
        connection.execute(f"create or replace view main.{VIEW} as {view}")
    if not with_final:
        _leave_out_final(
            connection, lambda table: f"({replaced.get(table) or every_row(table, with_packed=with_packed)})"
        )
    return connection


def _leave_out_final(connection: duckdb.DuckDBPyConnection, rows: Callable[[str], str]) -> None:
    """Leave single final examples out of a catalog's views: their answers, judgements, labels, and texts of calls.

    `rows` returns the SQL of all rows of a table.
    """
    final = f"""
        select owner, example_id from (
            select experiment_id as owner, snapshot_id from {rows("experiments")}
            union all select comparison_id, unnest(snapshot_ids) from {rows("comparison_sets")}
        ) join {rows("examples")} using (snapshot_id) where split = {quoted(FINAL)}"""
    for table in ("outputs", "judgements", "labels"):
        connection.execute(f"""
            create or replace view source.{table} as select * from {rows(table)} as item where not exists (
                from ({final}) as final where final.owner = item.experiment_id and final.example_id = item.example_id)
        """)
    connection.execute(f"""
        create or replace view source.examples as
        select * from {rows("examples")} where split is distinct from {quoted(FINAL)}
    """)
    connection.execute(f"""
        create or replace view source.attachments as select * replace ('' as content) from {rows("attachments")}
    """)  # those of final examples are not told apart
    connection.execute(f"""
        create or replace view source.checks as select * from {rows("checks")} as item
        where name <> 'slices' or not exists (from ({final}) as final where final.owner = item.subject_id)
    """)  # whoever has the means of slices can join the better answers of several versions
    texts = ", ".join(f"if(is_final, null, {column}) as {column}" for column in TABLES["calls"].texts)
    connection.execute(f"""
        create or replace view source.calls as select * exclude (is_final) replace ({texts}) from (
            select *, exists (from ({final}) as final where final.owner = item.experiment_id) as is_final
            from {rows("calls")} as item)
    """)


def confine(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    """Let a database open files below a root and in its temporary folder only, for good.

    DuckDB allows reading and writing alike, and follows links before it compares.
    """
    allowed = ", ".join(map(quoted, dict.fromkeys((root, os.path.realpath(root)))))
    connection.execute(f"set allowed_directories = [{allowed}]; set enable_external_access = false")


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


@dataclass(slots=True, kw_only=True)
class _Database:
    """A database with views, and what queries find beside them, which ends before it."""

    copies: TableCopies | None = None
    named: NamedFiles
    limit: str | None = None  # of the memory that it may use
    views: duckdb.DuckDBPyConnection


class SharedDatabases:
    """One database per root and process, for the store's own queries: creating one takes longer than most queries.

    Views hold no rows, so they stay valid when files change. Call `close` before the interpreter exits, or DuckDB
    reports leaks.
    """

    def __init__(self) -> None:
        self._databases: dict[tuple[int, str, int, bool], _Database] = {}
        self._lock = threading.RLock()  # making a database may find damaged files
        self._memory = AS_DUCKDB

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
        alone: Mapping[str, Collection[str]] | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """Return a new connection to the database of a root.

        `make` creates it if needed, if damage was found, and when the store has its first packed files. With `states`
        of local files, `tables` that are small are copies in memory of just these; with `owners`, the others have only
        the rows of these, in memory too. If these owners, by column, are `alone`, their sealed files are the `states`,
        and `tables` need not have the rows of others.
        """
        with self._lock:
            key = (os.getpid(), layout.root, damages.version, is_packed)  # a database does not survive a fork
            if key not in self._databases:
                if len(self._databases) >= MAX_DATABASES:
                    self._databases.pop(next(iter(self._databases)))
                views = make()
                self._databases[key] = _Database(views=views, named=NamedFiles(views, layout, is_packed=is_packed))
            database = self._databases[key]
            if states is not None and database.copies is None:
                database.copies = TableCopies(database.views, layout, has_damage=bool(damages.of()))
            copies, cursor = database.copies, database.views.cursor()
            if database.limit != self._memory:
                cursor.execute(f"set memory_limit = '{self._memory}'")
                database.limit = self._memory
        if states is None or copies is None:
            cursor.execute(FIND_STAGING)
        elif alone is None:
            copies.follow(states, tables)
            cursor.execute(owners.follow(database.views, states, tables, copies.tables) if owners else FIND_COPIES)
        elif copies.has_some(states, tables, alone):
            cursor.execute(FIND_COPIES)
        else:
            database.named.find(cursor, states, tables, alone)
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


shared, exporting = SharedDatabases(), SharedDatabases()
"""The databases of queries, which are confined, and of exports, which write files elsewhere."""

atexit.register(shared.close)
atexit.register(exporting.close)
