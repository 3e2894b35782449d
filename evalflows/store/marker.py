"""The marker of a store, which says its format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalflows.store.checksums import file_damage
from evalflows.store.files import FORMAT, PACKED_FORMAT, format_of, write_file
from evalflows.store.layout import Layout
from evalflows.store.schemas import TABLES, schema_of

GITIGNORE = ".gitignore"


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
