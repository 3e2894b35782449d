"""The files of a store as a restricted DuckDB sees them: they can be read, and nothing else can be done with them.

DuckDB's settings allow a folder for reading and writing alike. A restricted connection therefore has no local file
system at all, only this one, which has no way to write.
"""

import os
import re
import stat
from datetime import UTC, datetime
from glob import glob
from io import FileIO
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem

_PREFIX = "store://"


class ReadOnlyFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Opens regular files below one folder for reading. Raises PermissionError for every other path and mode."""

    protocol = "store"
    cachable = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = os.path.realpath(root)

    def open(self, path: str, mode: str = "rb", **_: Any) -> FileIO:
        if mode != "rb":
            raise PermissionError(f"{path}: the store is open for reading only")
        local = self._local(path)
        opened = os.open(local, os.O_RDONLY | os.O_NONBLOCK)  # without waiting for the other end of a pipe
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise PermissionError(f"{path}: not a regular file")
        return FileIO(opened)

    def glob(self, path: str, **_: Any) -> list[str]:
        found = glob(_without_prefix(path), recursive=True)  # noqa: PTH207  # DuckDB's patterns are absolute
        return [f"{_PREFIX}{name}" for name in sorted(found) if self._is_below(name)]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        state = Path(self._local(path)).stat()
        kind = "directory" if stat.S_ISDIR(state.st_mode) else "file"
        return {"name": path, "size": state.st_size, "type": kind, "mtime": state.st_mtime}

    def exists(self, path: str, **_: Any) -> bool:
        local = _without_prefix(path)
        return self._is_below(local) and Path(local).exists()

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def _local(self, path: str) -> str:
        local = _without_prefix(path)
        if not self._is_below(local):
            raise PermissionError(f"{path}: outside of the store")
        return local

    def _is_below(self, local: str) -> bool:
        return os.path.realpath(local).startswith(self._root + os.sep)


def _without_prefix(path: str) -> str:
    return re.sub(f"^{_PREFIX}", "", path)
