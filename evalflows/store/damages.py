"""Damaged files of the store, which queries leave out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.store.checksums import damage_error, file_damage, forget_hashes
from evalflows.store.layout import StoredFile
from evalflows.store.packs import owners_of
from evalflows.store.schemas import TABLES


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file, the owners whose rows it has, and the state in which it was."""

    file: StoredFile
    owners: frozenset[str]
    reason: str
    state: object

    @property
    def error(self) -> StorageError:
        return damage_error(self.file.path, self.reason)

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
    except OSError:
        for path, state in states.items():
            other = StoredFile.at(path)
            if other and other.is_packed and TABLES[other.table].owner == column:
                with suppress(OSError):
                    found |= owners_of(fs, path, state)
    return frozenset(found)


def damages_of(fs: Any) -> Damages:
    """Return what this process knows of the damaged files of a store."""
    found: Damages = vars(fs).setdefault("damages", Damages())
    return found
