"""Packed files of finished owners, damaged files that queries leave out, and the marker of a store.

`<table>/packed/all/<12 hexadecimal digits>.parquet` holds sealed rows of the owners that its metadata list. An owner
that has a file of its own, sealed or open, is read from that: its packed rows are of an earlier state.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError, print_note
from evalflows.store.arrow import np, pa, pc, pq
from evalflows.store.files import (
    FORMAT,
    PACKED_FORMAT,
    damaged,
    file_damage,
    forget_hashes,
    format_of,
    known,
    open_parquet,
    packed_states,
    row_groups,
    row_groups_of,
    state_of,
    storage_errors,
    verify,
    write_file,
)
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.schemas import TABLES, schema_of

OWNERS_KEY = b"evalflows.owners"
"""The key of the owners in a packed file's metadata: a JSON list."""


def owners_of(fs: Any, path: str, state: object = None) -> frozenset[str]:
    """Return the owners in a packed file; of a known state, the file is opened once.

    Raise OSError or ArrowException if its footer cannot be read.
    """
    owners: frozenset[str]
    before, owners = known(fs, "owners").get(path, (None, frozenset()))
    if state is None or before != state:
        with fs.open(path, "rb") as file:
            owners = frozenset(json.loads((pq.read_metadata(file).metadata or {}).get(OWNERS_KEY, b"[]")))
        known(fs, "owners")[path] = state, owners
    return owners


def packed_owners(layout: Layout, fs: Any, table: str) -> dict[str, tuple[str, object]]:
    """Return the owners in a table's packed files, each with its file and the file's state. Damaged files have none."""
    found: dict[str, tuple[str, object]] = {}
    for path, state, owners in _readable_packs(layout, fs, table):
        found |= dict.fromkeys(owners, (path, state))
    return found


def packed_file(layout: Layout, fs: Any, table: str, owner: str) -> str | None:
    """Return the packed file that has an owner's rows; None if there is none."""
    return next((path for path, _, owners in _readable_packs(layout, fs, table) if owner in owners), None)


def _readable_packs(layout: Layout, fs: Any, table: str) -> Iterator[tuple[str, object, frozenset[str]]]:
    """Yield the packed files of a table with their states and owners, without those replaced meanwhile or damaged."""
    for path, state in packed_states(layout, fs, table).items():
        with suppress(OSError, pa.ArrowException):
            yield path, state, owners_of(fs, path, state)


def files_of(fs: Any, states: Mapping[str, object], owners: Collection[str], tables: Collection[str]) -> Iterator[str]:
    """Yield the files, among these with their states, that rows of the owners are read from.

    A packed file whose footer cannot be read may be one of them.
    """
    names = frozenset(owners)
    # parsing every path would take longer than most queries
    mentioned = (path for path in states if path.split("/")[-2].partition("=")[2] in names)
    files = [file for path in mentioned if (file := StoredFile.at(path)) and file.table in tables]
    sealed = {(file.table, file.owner) for file in files if file.is_sealed}
    yield from (file.path for file in files if file.is_sealed or (file.table, file.owner) not in sealed)
    unpacked: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        unpacked[file.table].add(file.owner)
    packs = (pack for path in states if "/packed/all/" in path and (pack := StoredFile.at(path)))
    for pack in packs:
        if pack.table in tables and _may_have(fs, pack.path, states[pack.path], names - unpacked[pack.table]):
            yield pack.path


def _may_have(fs: Any, path: str, state: object, owners: frozenset[str]) -> bool:
    try:
        return bool(owners) and not owners.isdisjoint(owners_of(fs, path, state))
    except (OSError, pa.ArrowException):
        return True


def sealed_rows(
    layout: Layout, fs: Any, path: str, table: str, owner: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield an owner's rows in a sealed file, its own or a packed one, verified, one row group at a time.

    Raise StorageError if they are no longer there: another process has reopened the owner meanwhile.
    """
    verify(fs, path, state_of(layout, fs, path))
    if path == layout.sealed(table, owner):
        yield from row_groups(fs, path, table, columns)
        return
    count = 0
    for rows in packed_rows(fs, path, table, columns, {owner}):
        count += rows.num_rows
        yield rows
    if not count:
        raise StorageError(
            f"{path}: got no rows of {owner}, wanted its packed rows: another process moved them, so try again"
        )


def packed_rows(
    fs: Any, path: str, table: str, columns: Sequence[str], owners: Collection[str], *, all_but: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of owners in a packed file, or those of all others, one row group at a time.

    The file is opened once: another of the same name may take its place at any time.
    """

    column = TABLES[table].owner
    with open_parquet(fs, path) as parquet:
        names = parquet.read(columns=[column]).column(0)
        is_of_them = pc.is_in(names, value_set=pa.array(sorted(owners), pa.string())).to_numpy()
        yield from row_groups_of(parquet, table, columns, np.flatnonzero(is_of_them != all_but))


def write_pack(
    layout: Layout, fs: Any, path: str, table: str, tables: Iterable[pa.Table], owners: Collection[str]
) -> None:
    """Write a packed file atomically, in place of an earlier one of this path."""
    owned = {OWNERS_KEY: json.dumps(sorted(owners)).encode()}
    with storage_errors(path):
        name = partial(name_file, layout, fs)
        write_file(layout, fs, path, schema_of(TABLES[table].record), tables, owned, before=name)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file, the owners whose rows it has, and the state in which it was."""

    file: StoredFile
    owners: frozenset[str]
    reason: str
    state: object

    @property
    def error(self) -> StorageError:
        return damaged(self.file.path, self.reason)

    @property
    def note(self) -> str:
        """What every door says of it: whose rows are left out, and why."""
        owners = f"{len(self.owners)} owners" if self.file.is_packed else self.file.owner
        return f"left out {owners}: {self.error}"


class Damages:
    """The damaged files of one store. `version` changes with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_path: dict[str, Damage] = {}
        self._lock = threading.Lock()

    def find(self, fs: Any, states: Mapping[str, object], tables: Collection[str]) -> None:
        """Look for damaged files of tables among all files, and name new ones on standard error.

        Files that were sound before are read again. Checksums are verified if no footer is bad.
        """
        forget_hashes(fs, [path for path in states if (file := StoredFile.at(path)) and file.table in tables])
        for thoroughly in (False, True):
            if self._find(fs, states, tables, thoroughly):
                return

    def find_in(self, fs: Any, states: Mapping[str, object], table: str) -> None:
        """Verify all files of a table, and name newly found damaged ones on standard error."""
        self._find(fs, states, [table], thoroughly=True)

    def _find(self, fs: Any, states: Mapping[str, object], tables: Collection[str], thoroughly: bool) -> bool:
        with self._lock:
            before = self.version
            for path, state in states.items():
                file = StoredFile.at(path) if path not in self._by_path else None
                if file and file.table in tables and (reason := file_damage(fs, path, state, thoroughly=thoroughly)):
                    self._add(Damage(file, _owners(fs, file, states), reason, state))
            return self.version != before

    def forget_changed(self, state: Callable[[str], object]) -> None:
        """Forget files that were removed or replaced. `state` returns that of a file, None for one that has gone."""
        if self._by_path:
            with self._lock:
                for path, damage in [*self._by_path.items()]:
                    if state(path) != damage.state:
                        del self._by_path[path]
                        self.version += 1

    def note_change(self) -> None:
        """Count a change of other files, after which a query is worth repeating."""
        with self._lock:
            self.version += 1

    def owners(self, column: str) -> set[str]:
        """Return the owners that are left out of the tables with this owner column."""
        found = (damage.owners for damage in self._by_path.values() if TABLES[damage.file.table].owner == column)
        return set().union(*found)

    def packed_files(self, table: str) -> set[str]:
        """Return the damaged packed files of a table."""
        return {path for path, damage in self._by_path.items() if damage.file.is_packed and damage.file.table == table}

    def of(self, owners: Collection[str] | None = None) -> list[Damage]:
        """Return the damaged files of owners (None: of all)."""
        return [damage for damage in self._by_path.values() if owners is None or damage.owners & {*owners}]

    def _add(self, damage: Damage) -> None:
        self._by_path[damage.file.path] = damage
        self.version += 1
        print_note(damage.note)


def _owners(fs: Any, file: StoredFile, states: Mapping[str, object]) -> frozenset[str]:
    """Return the owners of a file; of a packed one whose footer cannot be read, all that any of its kind has."""
    if not file.is_packed:
        return frozenset({file.owner})
    column, found = TABLES[file.table].owner, set[str]()
    try:
        return owners_of(fs, file.path, states[file.path])
    except (OSError, pa.ArrowException):
        for path, state in states.items():
            other = StoredFile.at(path)
            if other and other.is_packed and TABLES[other.table].owner == column:
                with suppress(OSError, pa.ArrowException):
                    found |= owners_of(fs, path, state)
    return frozenset(found)


def damages_of(fs: Any) -> Damages:
    """Return what this process knows of the damaged files of a store."""
    found: Damages = vars(fs).setdefault("damages", Damages())
    return found


def restore_empties(layout: Layout, fs: Any, *, all_of_them: bool = False) -> list[str]:
    """Write missing or damaged empty files again, which loses nothing. Return their paths.

    Raise OSError if they cannot be written.
    """
    written = []
    for name, table in TABLES.items():
        path = layout.empty(name)
        if all_of_them or not fs.exists(path) or file_damage(fs, path):
            write_file(layout, fs, path, schema_of(table.record), [])
            written.append(path)
    return written


GITIGNORE = ".gitignore"


def prepare(layout: Layout, fs: Any) -> None:
    """Make the folder a store, unless it is one.

    The marker is written last: a store with a marker is complete. A new folder is private, and git ignores it. Raise
    ValueError for a store of another format.
    """
    there = _marker_of(layout, fs)
    if there in (_mark(FORMAT), _mark(PACKED_FORMAT)):
        return
    if layout.is_local and not (folder := Path(layout.root)).exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / GITIGNORE).write_text("*\n", encoding="ascii")
    restore_empties(layout, fs, all_of_them=True)
    is_packed = there is not None and json.loads(there)["format"] == PACKED_FORMAT
    fs.pipe_file(layout.marker, _mark(PACKED_FORMAT if is_packed else FORMAT))


def note_packed(layout: Layout, fs: Any) -> None:
    """Mark a store as one with packed files, which older versions refuse. To be called before the first is written."""
    if fs.cat_file(layout.marker) != _mark(PACKED_FORMAT):
        fs.pipe_file(layout.marker, _mark(PACKED_FORMAT))


def is_packed(layout: Layout, fs: Any) -> bool:
    """Return whether a store may have packed files. Rows are moved to one only after this is true."""
    try:
        return bool(fs.cat_file(layout.marker) != _mark(FORMAT))
    except FileNotFoundError:  # its queries will say that the store is gone
        return False


def _mark(number: int) -> bytes:
    return json.dumps({"format": number, "tables": [*TABLES], "states": ["empty", "sealed", "open", "packed"]}).encode()


def _marker_of(layout: Layout, fs: Any) -> bytes | None:
    """Return the marker of a store; None if there is none. Raise ValueError for a store of another format."""
    if not fs.exists(layout.marker):
        return None
    mark = bytes(fs.cat_file(layout.marker))
    format_of(mark)
    return mark
