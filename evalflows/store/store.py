"""The store: Parquet files in a folder or an object store."""

# `<table>/sealed/<owner>/rows.parquet` holds finished rows, each key once; evalflows/store/packs.py has those of many
# owners. `<table>/open/<owner>/<part>.parquet` holds rows of unfinished work, in which retries may repeat a key. Open
# parts are ignored if the owner has a sealed file. DuckDB lists files separately, so a query may miss an owner that is
# sealed meanwhile: `Store.query` detects this, a connection does not.

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evalflows.specs import hints
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.arrow import duckdb, pa
from evalflows.store.checksums import sha256_of
from evalflows.store.copies import OwnerCopies
from evalflows.store.damages import Damage, damages_of
from evalflows.store.database import confine, connect_source, exporting, shared
from evalflows.store.file_states import Copies, Tries, files_in, has_grown, state_of, states_of, unchanged
from evalflows.store.file_systems import files_at, noting_downloads, readable, readable_paths, storage_errors
from evalflows.store.files import last_recorded, write_file
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import WRITTEN, Contents, Written, check_written, write_sealed
from evalflows.store.marker import is_packed, prepare, restore_empties
from evalflows.store.merging import can_stay, merge_parts
from evalflows.store.packs import files_of, packed_file, packs_with, sealed_rows
from evalflows.store.schemas import TABLES, check_owner, columns_of, recorded_after, schema_of, to_rows
from evalflows.store.views import own_tables_of

if TYPE_CHECKING:
    from evalflows.store.read_only_files import ReadOnlyFiles

Result = TypeVar("Result")

MOST_REMEMBERED = 1000
"""The most rows of an answer that is remembered."""

REOPENED = "reopened"
"""The part with the rows that were sealed before an owner was reopened."""


@cache
def duckdb_errors() -> tuple[type[Exception], type[Exception]]:
    """Return what DuckDB raises; the second where the text of an error quotes damaged bytes."""
    return duckdb.Error, UnicodeDecodeError


@cache
def _of_query() -> tuple[type[Exception], ...]:
    """Return the errors of DuckDB that no damaged file causes."""
    of_text = duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException
    return *of_text, duckdb.InterruptException


def duckdb_error(error: BaseException | None) -> BaseException | None:
    """Return the error of DuckDB that an error is or comes from, None if it is another."""
    while error is not None and not isinstance(error, duckdb_errors()):
        error = error.__cause__
    return error


def _may_be_damage(error: BaseException) -> bool:
    return (cause := duckdb_error(error)) is not None and not isinstance(cause, _of_query())


class _Steady(NamedTuple):
    """The files that queries see, with their states: those of some tables, or of all (None)."""

    states: dict[str, object]
    tables: Collection[str] | None
    may_copy: bool = False  # whether queries may read copies that follow these states
    alone: Mapping[str, Collection[str]] | None = None  # the owners, by column, if only their sealed files are seen

    def has(self, tables: Collection[str] | None) -> bool:
        return self.tables is None or (tables is not None and {*tables} <= {*self.tables})


def _by_table(seen: _Steady) -> dict[str, list[StoredFile]]:
    """Return the files by table, of each of the tables."""
    found: dict[str, list[StoredFile]] = {table: [] for table in (TABLES if seen.tables is None else seen.tables)}
    for path in seen.states:
        if (file := StoredFile.at(path)) and file.table in found:
            found[file.table].append(file)
    return found


class _Reading(NamedTuple):
    """How queries read in a block: see `Store.reading`."""

    steady: _Steady | None = None
    answers: dict[str, list[list[Any]]] | None = None  # that are remembered
    about: OwnerCopies | None = None
    only: Mapping[str, Collection[str]] | None = None


_PLAINLY = _Reading()

_shared_answers: ContextVar[dict[str, list[list[Any]]] | None] = ContextVar("evalflows_answers", default=None)


@contextmanager
def sharing_answers() -> Iterator[None]:
    """Within the block, let all that reads `once` share what it remembers, as a run and what prints its results."""
    token = _shared_answers.set({})
    try:
        yield
    finally:
        _shared_answers.reset(token)


class Store:
    """The files under one root, for any number of processes. InputError if it cannot be created or read."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.layout = Layout.at(root)
        self._reading: ContextVar[_Reading] = ContextVar("evalflows_reading", default=_PLAINLY)
        try:
            self._fs = files_at(self.layout)
            prepare(self.layout, self._fs)
        except (OSError, ValueError, ImportError) as error:
            raise InputError(f"store {self.layout.root!r}: {error}") from error
        self._damages = damages_of(self._fs)
        self.failure: StorageError | None = None
        """Why a row of finished work could not be written: nothing more is paid for then."""

    def publish(self, table: str, owner: str, rows: Iterable[object] | pa.Table) -> None:
        """Write and seal all rows of an owner in a table. Raise ValueError for a row of another, and StorageError."""
        self.publish_all(owner, [(table, [check_owner(table, owner, rows)])])

    def publish_all(self, owner: str, contents: Contents, written: Written = WRITTEN) -> None:
        """Write and seal all rows of an owner in several tables, in this order, with one Arrow table in memory."""
        checked = ((table, (check_owner(table, owner, rows) for rows in tables)) for table, tables in contents)
        write_sealed(self.layout, self._fs, owner, checked, self._check_marker, written)

    def append(self, table: str, owner: str, part: str, rows: Iterable[object] | pa.Table) -> None:
        """Add rows to an open owner; without rows, write nothing.

        Results are recorded after the part's earlier ones even if the clock was set back, since the later row wins.

        Raise ValueError for a row of another owner, and StorageError if they cannot be written.
        """
        data = check_owner(table, owner, rows)
        if data.num_rows:
            if TABLES[table].settled and (earlier := self._open_files(table, owner, [part])):
                with self.cursor() as connection:
                    data = recorded_after(data, last_recorded(connection, readable_paths(self._fs, earlier)))
            self._write(table, f"{self.layout.open_folder(table, owner)}/{part}.{secrets.token_hex(6)}.parquet", [data])

    def open_parts(self, table: str, owner: str, parts: Sequence[str] | None = None) -> dict[str, int]:
        """Return the files of an open owner, or of `parts` of it, each with its size in bytes."""
        sizes: dict[str, int] = {}
        for path in self._open_files(table, owner, parts):
            with suppress(FileNotFoundError):  # merged or sealed meanwhile
                sizes[path] = self._fs.size(path)
        return sizes

    def merge_parts(self, table: str, owner: str, part: str, paths: list[str]) -> None:
        """Write the rows of some files of an open owner, each key once, as one more; they are to be removed then."""
        path = f"{self.layout.open_folder(table, owner)}/{part}.{secrets.token_hex(6)}.parquet"
        self._write(table, path, self._merged(table, paths, columns_of(table)))

    def read(self, table: str, owner: str, parts: Sequence[str] | None = None, *, texts: bool = True) -> list[Any]:
        """Return an owner's rows as records, each key once; for an open owner, only those of `parts` if given.

        Rows sealed before it was reopened belong to every part. Raise StorageError for a damaged file.
        """
        asked = (table, owner, parts, texts)
        return self._remembered(asked, lambda: [[*self.rows(table, owner, parts, texts=texts)]])[0]

    def rows(self, table: str, owner: str, parts: Sequence[str] | None = None, *, texts: bool = True) -> Iterator[Any]:
        """Yield the same records, a row group in memory at a time."""
        for data in self.scan(table, owner, parts, texts=texts):
            yield from to_rows(table, data)

    def scan(
        self, table: str, owner: str, parts: Sequence[str] | None = None, *, texts: bool = True
    ) -> Iterator[pa.Table]:
        """Yield the same rows as Arrow tables, of at most a row group each. Without `texts`, they lack some columns."""
        columns = columns_of(table, texts=texts)
        if path := self.sealed_file(table, owner):
            yield from sealed_rows(self.layout, self._fs, path, table, owner, columns)
        else:
            yield from self._merged(table, self._open_files(table, owner, parts), columns)

    def is_sealed(self, table: str, owner: str) -> bool:
        return self.sealed_file(table, owner) is not None

    def has_rows(self, table: str, owner: str) -> bool:
        """Return whether an owner may have rows in a table, sealed or not."""
        return self.is_sealed(table, owner) or bool(self._open_files(table, owner))

    def sealed_file(self, table: str, owner: str) -> str | None:
        """Return the file with an owner's sealed rows, its own or a packed one; None if the owner is not sealed."""
        if self._exists(path := self.layout.sealed(table, owner)):
            return path
        packed = packed_file(self.layout, self._fs, table, owner)
        return None if packed and self._open_files(table, owner) else packed

    def seal(self, owner: str, tables: Sequence[str]) -> None:
        """Merge an owner's open parts into one file per table with unique keys, and remove the parts. Idempotent."""
        parts = {table: self._open_files(table, owner) for table in tables if not self.is_sealed(table, owner)}
        contents = [(table, self._sealable(table, of)) for table, of in parts.items() if of]
        at_once = sum(not isinstance(rows, str) for _, rows in contents) > 1
        write_sealed(self.layout, self._fs, owner, contents, self._check_marker, at_once=at_once)
        for table in tables:
            self._remove_open(table, owner)

    def reopen(self, owner: str, tables: Sequence[str]) -> None:
        """Turn an owner's sealed files, if a run wrote them, back into open parts, to add rows. Idempotent."""
        for table in tables:
            sealed, folder = self.sealed_file(table, owner), self.layout.open_folder(table, owner)
            check_written(self.layout, self._fs, [sealed] if sealed else [])
            part = f"{folder}/{REOPENED}.{secrets.token_hex(6)}.parquet"
            if sealed == self.layout.sealed(table, owner):
                self._remove_open(table, owner)  # left over from an interrupted seal
                with storage_errors(folder):
                    self._fs.makedirs(folder, exist_ok=True)
                    try:
                        self._fs.mv(sealed, part)
                    except FileNotFoundError:
                        if self._exists(sealed):
                            raise
                        self.reopen(owner, [table])  # it has just been packed
            elif sealed is not None:  # its packed rows no longer count once it has an open part
                self._write(table, part, self.scan(table, owner))

    def connect(
        self,
        *,
        with_packed: bool = True,
        files: ReadOnlyFiles | None = None,
        with_final: bool = True,
        views: Collection[str] = (),
    ) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB with the catalog's views, without owners known to be damaged.

        It may be one without packed files as long as there are none. With `files`, it opens these for reading;
        `restrict` takes all others from it. Within `steady`, it is for queries of the block then, from the files that
        they see, and of these `views`. Without `with_final`, it has no rows of single final examples.
        """
        folder = readable(self.layout, self._fs)
        if not self.layout.is_local:
            self.steady(lambda: None)  # the mirror has one state of the store then
        seen = self._reading.get().steady if files is not None else None
        known = _by_table(seen) if seen and seen.may_copy and seen.alone is None else None
        while True:
            version = self._damages.version
            try:
                return connect_source(
                    folder, self._damages, with_packed, files, with_final=with_final, known=known, views=views
                )
            except duckdb.Error:
                if not self.mend(since=version):
                    raise

    def read_only_files(self) -> ReadOnlyFiles:
        """Return the files that a connection for SQL of others may open."""
        from evalflows.store.read_only_files import ReadOnlyFiles  # late: fsspec is slow to load

        return ReadOnlyFiles(readable(self.layout, self._fs).root)

    def writing_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection with the catalog's views that may write files anywhere, to export rows."""
        folder, packed = readable(self.layout, self._fs), is_packed(self.layout, self._fs)
        return exporting.cursor(folder, self._damages, packed, partial(self.connect, with_packed=packed))

    def cursor(self, tables: Collection[str] = ()) -> duckdb.DuckDBPyConnection:
        """Return a connection to this process's database, with the catalog's views, which opens no other files.

        Within `steady`, these tables are copies in memory if they are small; the others are files.
        """
        folder, packed = readable(self.layout, self._fs), is_packed(self.layout, self._fs)
        reading = self._reading.get()
        make, known = partial(self._confined, folder.root, packed), reading.steady
        if not tables or known is None or not known.may_copy or not known.has(tables):
            return shared.cursor(folder, self._damages, packed, make)
        return shared.cursor(
            folder, self._damages, packed, make, known.states, tables, reading.about, alone=known.alone
        )

    def _confined(self, root: str, with_packed: bool) -> duckdb.DuckDBPyConnection:
        connection = self.connect(with_packed=with_packed)
        confine(connection, root)
        return connection

    def mend(self, since: int | None = None, tables: Collection[str] | None = None) -> bool:
        """Write missing empty files again, and leave out owners with damaged files, after a query failed.

        The files of these `tables` (None: of all) are verified even if they were sound before: a disk that fails
        changes no time of modification. Return whether anything has changed, here or in another thread, `since` a
        version of the known damage.
        """
        version = self._damages.version if since is None else since
        self._check_marker()
        with storage_errors(self.layout.root), noting_downloads(self._fs, self._damages.note_change):
            if restore_empties(self.layout, self._fs):
                self._damages.note_change()
            else:
                self._damages.find(self._fs, self._states(), TABLES if tables is None else tables)
        return self._damages.version != version

    @property
    def filesystem(self) -> Any:
        return self._fs

    @property
    def damage_version(self) -> int:
        return self._damages.version

    def state(self) -> object:
        """Return what is another one once a file was added, removed or replaced, or found damaged; None for an object
        store, whose files are not listed in no time."""
        return (self._damages.version, frozenset(self._states().items())) if self.layout.is_local else None

    def left_out(self) -> list[Damage]:
        """Return the damaged files that this process has found; queries leave out their owners."""
        return self._damages.of()

    def verify(self, owners: Iterable[str], tables: Collection[str] = TABLES.keys()) -> dict[str, str]:
        """Verify the owners' files in these tables, once per process and state of a file. Return their hashes.

        Raise StorageError for a damaged file: what decides must not rest on other values than those that were written.
        """
        names, states = set(owners), self._known_states(tables)
        for damage in self._damages.of(names):
            raise damage.error
        hashes = {path: sha256_of(self._fs, path, states[path]) for path in files_of(self._fs, states, names, tables)}
        return {path: digest for path, digest in hashes.items() if digest is not None}

    def verify_table(self, table: str) -> list[Damage]:
        """Verify all files of a table of few, small files. Return the damaged ones, which queries then leave out."""
        self._damages.find_in(self._fs, self._known_states([table]), table)
        return [damage for damage in self._damages.of() if damage.file.table == table]

    def _known_states(self, tables: Collection[str] | None) -> dict[str, object]:
        known = self._reading.get().steady
        return known.states if known and known.has(tables) else self._states(tables)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, repeated if an owner was sealed meanwhile.

        The files of owners among the parameters are verified before: raise StorageError for a damaged one.
        """

        tables = own_tables_of(sql)

        def read() -> list[list[tuple[Any, ...]]]:
            self.verify(texts_in(parameters), set(re.findall(r"\bsource\.(\w+)", sql)))
            with self.cursor(tables) as connection:
                return [connection.execute(sql, parameters).fetchall()]

        return self.answered((sql, parameters), read, tables)[0]

    @contextmanager
    def reading(
        self,
        *,
        only: Mapping[str, Collection[str]] | None = None,
        about: Collection[str] | None = None,
        once: bool = False,
    ) -> Iterator[Store]:
        """Within the block, let queries read less than the whole store, or less often.

        Args:
            only: Read just the files of these owners, by column, for queries of tables that have such ones, as long as
                they are sealed. Such queries take no longer in a store of many others, whose rows they may not see.
            about: Read the rows of these experiments once, into memory. Queries may then miss answers, scores and calls
                of all others, unless `only` names some of those.
            once: Answer a question that has been asked before with the rows of that time, if they are few: for what
                only reads, as a report does, whose parts ask some things alike.
        """
        now = self._reading.get()
        copies = now.about if about is None else OwnerCopies(about, self._states_alone)
        if copies is not None and not copies.experiments.issuperset((only or {}).get("experiment_id", ())):
            copies = None
        answers = now.answers
        if once and answers is None:
            answers = {} if (known := _shared_answers.get()) is None else known
        token = self._reading.set(now._replace(answers=answers, about=copies, only=now.only if only is None else only))
        try:
            yield self
        finally:
            self._reading.reset(token)
            if about is not None and copies is not None:
                copies.close()

    def answered(
        self, question: object, read: Callable[[], list[list[tuple[Any, ...]]]], tables: Collection[str]
    ) -> list[list[tuple[Any, ...]]]:
        """Return the rows of some queries, `steady`: those that are remembered, else those that `read` returns."""
        return self._remembered(question, lambda: self.steady(read, tables))

    def _remembered(self, question: object, read: Callable[[], list[list[Any]]]) -> list[list[Any]]:
        if (known := self._reading.get().answers) is None:
            return read()
        if (key := repr(question)) not in known:
            answer = read()
            if sum(map(len, answer)) > MOST_REMEMBERED:
                return answer
            known[key] = answer
        return [[*rows] for rows in known[key]]

    def _states_alone(
        self, tables: Collection[str] | None, only: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, object] | None:
        """Return the files of the owners in `only`, their own and packed ones; None if tables have others, or rows that
        are not sealed or may be damaged, or if a packed file also has earlier rows of an owner that has its own."""
        owners, states = only or self._reading.get().only, dict[str, object]()
        if owners is None or tables is None or not self.layout.is_local or self._damages.of():
            return None
        for table in tables:
            if (column := TABLES[table].owner) not in owners:
                return None
            packed = set[str]()
            for owner in owners[column]:
                path = self.layout.sealed(table, owner)
                if (state := state_of(self.layout, self._fs, path)) is not None:
                    states[path] = state
                elif self._open_files(table, owner):
                    return None
                else:
                    packed.add(owner)
            packs = packs_with(self.layout, self._fs, table, packed, {*owners[column]} - packed) if packed else {}
            if packs is None:
                return None
            states |= packs
        return states

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Any]:
        """Return the columns of a query as numpy arrays, ten times faster than rows. No file is verified."""

        tables = own_tables_of(sql)

        def read() -> dict[str, Any]:
            with self.cursor(tables) as connection:
                return connection.execute(sql, parameters).fetchnumpy()

        return self.steady(read, tables)

    def steady(
        self, read: Callable[[], Result], tables: Collection[str] | None = None, *, may_grow: bool = False
    ) -> Result:
        """Return the result of `read`, repeated if files changed meanwhile, so that no owner is missed or half read.

        All queries within `read` see one state of the store, but later ones may also see observations that have just
        arrived: under a busy receiver, no state lasts as long as a query. If it `may_grow`, they may see any rows that
        have just been added. Raise StorageError if files never rest.

        `tables` are those that `read` queries (None: any). Only their files are listed, which takes the most time of a
        short query.
        """
        if not self.layout.is_local:
            tables = None  # the mirror has one state of all
        known = self._reading.get().steady
        if known is not None and not known.has(tables):
            known = None
        if (known is None or known.alone is None) and (alone := self._read_alone(read, tables, known)):
            return alone[0]
        return read() if known else self._read_unchanged(read, tables, may_grow=may_grow)

    def _read_alone(
        self, read: Callable[[], Result], tables: Collection[str] | None, known: _Steady | None
    ) -> tuple[Result] | None:
        """Return the result of `read` from the files in `only`; None if there are others, or they changed meanwhile, or
        since a state that is `known`."""
        alone = self._states_alone(tables)
        if alone is None or (known and not alone.items() <= known.states.items()):
            return None
        with self._seeing(_Steady(alone, tables, may_copy=True, alone=self._reading.get().only)):
            try:
                result = read()
            except duckdb_errors():  # of a file that was replaced or is damaged, which reading all files finds
                return None
        return (result,) if self._states_alone(tables) == alone else None

    def _read_unchanged(self, read: Callable[[], Result], tables: Collection[str] | None, *, may_grow: bool) -> Result:
        """Return the result of `read`, repeated until no file changed meanwhile."""
        tries = Tries(self.layout.root)
        while True:
            before, version = self._states(tables, follow=True), self._damages.version
            self._damages.forget_changed(partial(state_of, self.layout, self._fs))
            copies = Copies(self.layout, self._fs, before)
            may_copy = self.layout.is_local and tries.count == 0  # files that change all the time are not followed
            try:
                with self._seeing(_Steady(before, tables, may_copy)):
                    result = read()
            except (InputError, StorageError, *duckdb_errors()) as error:
                had_little = isinstance(error, duckdb.OutOfMemoryException) and shared.lift_limit()
                after = self._states(tables)
                has_gone = not (before.items() <= after.items() and copies.are_kept)
                # a file may also have come and gone since the listing, as the parts of an owner that is reopened
                has_come = isinstance(duckdb_error(error), duckdb.IOException) and not (
                    tries.count and unchanged(before, after)
                )
                repeat = had_little or has_gone or has_come
                if not (repeat or (_may_be_damage(error) and self.mend(version, tables))):
                    raise
            else:
                after = self._states(tables)
                if (unchanged(before, after) or (may_grow and has_grown(before, after))) and copies.are_kept:
                    return result
            tries.pause(before, partial(self._states, tables))

    @contextmanager
    def _seeing(self, steady: _Steady) -> Iterator[None]:
        """Let all queries of the block see these files."""
        token = self._reading.set(self._reading.get()._replace(steady=steady))
        try:
            yield
        finally:
            self._reading.reset(token)

    def _merged(self, table: str, paths: list[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from merge_parts(self.cursor, self.layout, self._fs, table, paths, columns)

    def _sealable(self, table: str, parts: list[str]) -> Iterable[pa.Table] | str:
        """Return the rows of an owner's parts, or its one part if that needs no merging."""
        if len(parts) == 1 and can_stay(self.layout, self._fs, table, parts[0]):
            return parts[0]
        return self._merged(table, parts, columns_of(table))

    def _open_files(self, table: str, owner: str, parts: Sequence[str] | None = None) -> list[str]:
        folder = self.layout.open_folder(table, owner)
        found = files_in(folder) if self.layout.is_local else self._fs.glob(f"{folder}/*.parquet")
        paths = [*filter(StoredFile.at, sorted(found))]
        if parts is not None:
            paths = [path for path in paths if path.rpartition("/")[2].partition(".")[0] in {*parts, REOPENED}]
        return paths

    def _states(self, tables: Collection[str] | None = None, *, follow: bool = False) -> dict[str, object]:
        with storage_errors(self.layout.root):
            return states_of(self.layout, self._fs, tables, follow=follow)

    def _exists(self, path: str) -> bool:
        with storage_errors(path):
            return bool(self._fs.exists(path))

    def _remove_open(self, table: str, owner: str) -> None:
        folder = self.layout.open_folder(table, owner)
        if self._exists(folder):
            with storage_errors(folder):
                self._fs.rm(folder, recursive=True)

    def _write(self, table: str, path: str, tables: Iterable[pa.Table]) -> None:
        """Write a file. Raise StorageError if that fails, also if somebody removed the store meanwhile."""
        with storage_errors(path):
            self._check_marker()
            write_file(self.layout, self._fs, path, schema_of(TABLES[table].record), tables)

    def _check_marker(self) -> None:
        if not self._exists(self.layout.marker):
            raise StorageError(f"{self.layout.marker}: the store is gone")


def texts_in(parameters: Iterable[object]) -> set[str]:
    """Return the texts among a query's parameters, some of which may be owners."""
    values = [value if isinstance(value, list | tuple) else [value] for value in parameters]
    return {text for texts in values for text in texts if isinstance(text, str)}


def is_store(layout: Layout) -> bool:
    """Return whether there is a store, even if it has lost its marker. Raise InputError if its root cannot be read."""
    try:
        fs = files_at(layout)
        return bool(fs.exists(layout.marker)) or any(fs.exists(f"{layout.root}/{table}") for table in TABLES)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"store {layout.root!r}: {error}") from error


def existing_store() -> Store:
    """Return the store. Raise InputError if there is none."""
    layout = Layout.at()
    if not is_store(layout):
        raise InputError(no_store(layout))
    return Store(layout.root)


@contextmanager
def store_or_empty() -> Iterator[Store]:
    """Yield the store, or an empty temporary one if there is none."""
    layout = Layout.at()
    if is_store(layout):
        yield Store(layout.root)
        return
    with TemporaryDirectory(prefix="evalflows-") as folder:
        yield Store(folder)


def no_store(layout: Layout) -> str:
    """Say that there is no store, and how to begin or name another."""
    return f"no store at {layout.root}: {hints.run().code} creates one, and EVALFLOWS_STORE names another"


def no_experiments(layout: Layout) -> str:
    return f"no experiments in the store {layout.root}: {hints.run().code} creates one"
