"""States of the store's files: a file whose state is unchanged is unchanged."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalflows.store.layout import Layout

_SINCE = ("mtime", "LastModified", "updated", "created", "ETag")  # names of the modification time in file systems


def states_of(layout: Layout, fs: Any) -> dict[str, object]:
    """Return the store's Parquet files, each with its state: size and modification time, None if unknown."""
    if layout.is_local:
        return _local_states(Path(layout.root))
    fs.invalidate_cache()
    details = fs.glob(f"{layout.root}/*/*/*/*.parquet", detail=True)
    return {path: _remote_state(info) for path, info in details.items()}


def unchanged(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether two states are the same, but for the parts of days to which observations are added.

    A part of a day is removed only long after the part that replaces it was written.
    """
    return before == after or _lasting(before) == _lasting(after)


def _lasting(states: Mapping[str, object]) -> dict[str, object]:
    return {path: state for path, state in states.items() if "/observations/open/" not in path}


def state_of(layout: Layout, fs: Any, path: str) -> object:
    """Return the state of one file, None if it is unknown or the file has gone."""
    with suppress(FileNotFoundError):
        return _local_state(Path(path)) if layout.is_local else _remote_state(fs.info(path))
    return None


def _local_states(root: Path) -> dict[str, object]:
    """Return the files of a local folder with their states, five times faster than with fsspec."""
    while True:
        with suppress(FileNotFoundError):  # a file or a folder was removed meanwhile: list again
            return {str(path): _local_state(path) for path in root.glob("*/*/*/*.parquet")}


def _local_state(path: Path) -> object:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _remote_state(info: Mapping[str, Any]) -> object:
    since = next((info[key] for key in _SINCE if key in info), None)
    return None if since is None else (info.get("size"), since)
