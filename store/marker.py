"""The file that marks a folder as a store: its format, and its tables."""

import json
from pathlib import Path
from typing import Any

from evalflows.store.damage import restore_empties
from evalflows.store.layout import Layout
from evalflows.store.parquet_files import FORMAT, format_of
from evalflows.store.schemas import TABLES

_MARK = json.dumps({"format": FORMAT, "tables": [*TABLES]}).encode()


def prepare(layout: Layout, fs: Any) -> None:
    """Make the folder a store, unless it is one.

    The marker is written last: a store with a marker is complete. A new folder is private. Raise ValueError for a store
    of another format.
    """
    if _is_prepared(layout, fs):
        return
    if layout.is_local:
        Path(layout.root).mkdir(mode=0o700, parents=True, exist_ok=True)
    restore_empties(layout, fs, all_of_them=True)
    fs.pipe_file(layout.marker, _MARK)


def _is_prepared(layout: Layout, fs: Any) -> bool:
    """Return whether the store has all tables. Raise ValueError for a store of another format."""
    fs.invalidate_cache()
    if not fs.exists(layout.marker):
        return False
    mark = fs.cat_file(layout.marker)
    written = format_of(mark)
    if written < FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: `evalflows migrate` rewrites an older store")
    return bool(mark == _MARK)
