"""What a process knows of damaged files in a store: the views leave out their owners, and everything else goes on."""

import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from evalflows.specs.errors import StorageError
from evalflows.specs.safe_text import print_note
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.packs import owners_of
from evalflows.store.parquet_files import write_file
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.verification import damaged, file_damage


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


class Damages:
    """The damaged files of one store. `version` changes with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_path: dict[str, Damage] = {}
        self._lock = threading.Lock()

    def find(self, fs: Any, states: Mapping[str, object]) -> None:
        """Look for damaged files, and name new ones on standard error. Checksums are verified if no footer is bad."""
        for thoroughly in (False, True):
            if self._find(fs, states, thoroughly):
                return

    def find_in(self, fs: Any, states: Mapping[str, object], table: str) -> None:
        """Verify all files of a table, and name newly found damaged ones on standard error."""
        paths = [path for path in states if (file := StoredFile.at(path)) and file.table == table]
        self._find(fs, {path: states[path] for path in paths}, thoroughly=True)

    def _find(self, fs: Any, states: Mapping[str, object], thoroughly: bool) -> bool:
        with self._lock:
            before = self.version
            for path, state in states.items():
                file = StoredFile.at(path) if path not in self._by_path else None
                if file and (reason := file_damage(fs, path, state, thoroughly=thoroughly)):
                    self._add(Damage(file, _owners(fs, file, states), reason, state))
            return self.version != before

    def forget_changed(self, states: Mapping[str, object]) -> None:
        """Forget files that were removed or replaced."""
        if self._by_path:
            with self._lock:
                for path, damage in [*self._by_path.items()]:
                    if states.get(path) != damage.state:
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
        left_out = f"{len(damage.owners)} owners" if damage.file.is_packed else damage.file.owner
        print_note(f"left out {left_out}: {damage.error}")


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


_of_root: dict[tuple[int, str], Damages] = {}


def damages_of(layout: Layout) -> Damages:
    """Return what this process knows of the damaged files of a store."""
    return _of_root.setdefault((os.getpid(), layout.root), Damages())


def restore_empties(layout: Layout, fs: Any, *, all_of_them: bool = False) -> list[str]:
    """Write missing or damaged empty files again, which loses nothing. Return their paths.

    Raise OSError if they cannot be written.
    """
    written = []
    for name, table in TABLES.items():
        for path in layout.empties(name):
            if all_of_them or not fs.exists(path) or file_damage(fs, path):
                write_file(layout, fs, path, schema_of(table.record), [])
                written.append(path)
    return written
