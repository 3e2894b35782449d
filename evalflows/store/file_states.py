"""States of the store's files: who reads them can tell that one was changed, and tries again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.layout import SEALED, Layout, StoredFile
from evalflows.store.schemas import TABLES

TRIES, TRIES_S = 10, 30.0
"""Tries of a query, and seconds since the first one began, until it is given up."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 1.0
"""Seconds between the first two tries, doubled each time, and the most between two."""


def states_of(
    layout: Layout, fs: Any, tables: Collection[str] | None = None, *, follow: bool = False
) -> dict[str, object]:
    """Return the store's Parquet files, each with its state: size and modification time, or an object's version.

    `tables`: only those of these tables. With `follow`, an object store's mirror is brought to this state.
    """
    if layout.is_local:
        return _local_states(layout.root, tables)
    return dict(fs.follow() if follow else fs.states(tables))


def owner_states(layout: Layout, fs: Any, table: str) -> dict[str, object]:
    """Return the owners that have files of their own in a table, each with a value that changes with these.

    Sealed ones are quick to list: their file's name is known.
    """
    if layout.is_local:
        return _local_owners(layout.root, table)
    owners: dict[str, list[object]] = {}
    for path, state in sorted(states_of(layout, fs, (table,)).items()):
        if (file := StoredFile.at(path)) and not file.is_packed:
            owners.setdefault(file.owner, []).append((path, state))
    return {owner: tuple(files) for owner, files in owners.items()}


def packed_states(layout: Layout, fs: Any, table: str) -> dict[str, object]:
    """Return a table's packed files, each with its state."""
    folder = layout.packed_folder(table)
    if not layout.is_local:
        states = states_of(layout, fs, (f"{table}/packed",))
        return {path: state for path, state in states.items() if StoredFile.at(path)}
    while Path(folder).is_dir():
        with suppress(FileNotFoundError):  # a file was removed meanwhile: list again
            return {entry.path: _local_state(entry.stat()) for entry in _entries(folder) if StoredFile.at(entry.path)}
    return {}


def unchanged(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether two states are the same, but for the parts of days to which observations are added.

    A part of a day is removed only long after the part that replaces it was written.
    """
    return before == after or _lasting(before) == _lasting(after)


def has_grown(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether a later state has all files of an earlier one as they were, but for the parts of such days."""
    return _lasting(before).items() <= after.items()


def _lasting(states: Mapping[str, object]) -> dict[str, object]:
    """Return the files without the parts of days."""
    return {path: state for path, state in states.items() if "/observations/open/" not in path}


def state_of(layout: Layout, fs: Any, path: str) -> object:
    """Return the state of one file, None if it is unknown or the file has gone."""
    with suppress(FileNotFoundError):
        return _local_state(os.stat(path)) if layout.is_local else fs.state(path)  # noqa: PTH116  # of hundreds
    return None


class Tries:
    """The tries of a query that is repeated while files change: pauses between them that grow, and an end."""

    def __init__(self, root: str) -> None:
        self._root, self.count, self._began = root, 0, time.monotonic()

    def pause(self, before: Mapping[str, object], states: Callable[[], Mapping[str, object]]) -> None:
        """Wait for the next try, after one that began with the files `before`.

        Raise StorageError, which names a file that has changed, after TRIES and TRIES_S.
        """
        self.count += 1
        if self.count >= TRIES and time.monotonic() - self._began >= TRIES_S:
            was, now = _lasting(before), _lasting(states())
            changed = sorted(path for path in {*was, *now} if was.get(path) != now.get(path))
            path = changed[0] if changed else self._root
            raise StorageError(
                f"{path}: changed during each of {self.count} tries to read the store, "
                "wanted no change for as long as a query takes; try again later"
            )
        time.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.count - 1)))


class Copies:
    """The mirror's copies of an object store's files; none for a local store.

    Other processes may remove a copy at any time, as for lack of room, and fetch it again.
    """

    def __init__(self, layout: Layout, fs: Any, states: Mapping[str, object]) -> None:
        self._fs, self._paths = fs, [] if layout.is_local else [*_lasting(states)]
        self._states = self._now()

    @property
    def are_kept(self) -> bool:
        """Whether all have been there since."""
        return None not in self._states.values() and self._now() == self._states

    def _now(self) -> dict[str, object]:
        return dict(self._fs.copies(self._paths)) if self._paths else {}


def _local_states(root: str, tables: Collection[str] | None) -> dict[str, object]:
    """Return the files of a local folder with their states, ten times faster than with fsspec."""
    while Path(root).is_dir():
        with suppress(FileNotFoundError):  # a file or a folder was removed meanwhile: list again
            names = [entry for entry in _entries(root) if entry.name in (TABLES if tables is None else tables)]
            owners = (owner for table in names for state in _entries(table) for owner in _entries(state))
            return {
                file.path: _local_state(file.stat())
                for owner in owners
                for file in _entries(owner)
                if file.name.endswith(".parquet")
            }
    return {}


def _local_owners(root: str, table: str) -> dict[str, object]:
    """Return the owners of a table of a local folder. A sealed file counts alone, since open ones are then ignored."""
    prefix, owners = f"{TABLES[table].owner}=", dict[str, object]()
    unsealed, sealed = Path(root, table, "open"), Path(root, table, "sealed")  # made with their first file
    for entry in _entries(str(unsealed)) if unsealed.is_dir() else ():
        with suppress(FileNotFoundError):  # sealed meanwhile
            parts = tuple(sorted((part.name, _local_state(part.stat())) for part in _entries(entry)))
            owners[entry.name.removeprefix(prefix)] = parts
    for entry in _entries(str(sealed)) if sealed.is_dir() else ():
        with suppress(FileNotFoundError, NotADirectoryError):
            owners[entry.name.removeprefix(prefix)] = _local_state(os.stat(f"{entry.path}/{SEALED}"))  # noqa: PTH116  # of thousands
    return owners


def files_in(folder: str) -> list[str]:
    """Return the paths in a local folder, ten times faster than with fsspec; none if it is not there."""
    try:
        return [entry.path for entry in _entries(folder)]
    except FileNotFoundError:
        return []


def _entries(folder: str | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing in a file, and in a folder that may not be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (NotADirectoryError, PermissionError):
        return []


def _local_state(stat: os.stat_result) -> object:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
