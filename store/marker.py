"""The file that marks a folder as a store: its format, and its tables."""

import json
from pathlib import Path
from typing import Any

from evalflows.store.damage import restore_empties
from evalflows.store.layout import Layout
from evalflows.store.parquet_files import FORMAT, PACKED_FORMAT, format_of
from evalflows.store.schemas import TABLES


def prepare(layout: Layout, fs: Any) -> None:
    """Make the folder a store, unless it is one.

    The marker is written last: a store with a marker is complete. A new folder is private. Raise ValueError for a store
    of another format.
    """
    there = _marker_of(layout, fs)
    if there in (_mark(FORMAT), _mark(PACKED_FORMAT)):
        return
    if layout.is_local:
        Path(layout.root).mkdir(mode=0o700, parents=True, exist_ok=True)
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
    return json.dumps({"format": number, "tables": [*TABLES], "states": ["sealed", "open", "packed"]}).encode()


def _marker_of(layout: Layout, fs: Any) -> bytes | None:
    """Return the marker of a store; None if there is none. Raise ValueError for a store of another format."""
    if not fs.exists(layout.marker):
        return None
    mark = bytes(fs.cat_file(layout.marker))
    format_of(mark)
    return mark
