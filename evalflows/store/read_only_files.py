"""The files of a store for a DuckDB that may read nothing else: below one folder, and without a way to write."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from glob import glob
from io import FileIO
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem

_PREFIX = "store://"

_OF_NAMES = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors that a name in a query may cause. A file of the store that has gone is noticed by the state of its files."""


class ReadOnlyFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Opens regular files below one folder for reading. Raises PermissionError for every other path and mode.

    `failures` are the errors of the system for files that may be read: DuckDB passes on their texts only.
    """

    protocol = "store"
    cachable = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = os.path.realpath(root)
        self.failures: list[OSError] = []

    def open(self, path: str, mode: str = "rb", **_: Any) -> SharedFile:
        if mode != "rb":
            raise PermissionError(f"{path}: the store is open for reading only")
        local = self._local(path)
        with _noting(self.failures, local):
            opened = os.open(local, os.O_RDONLY | os.O_NONBLOCK)  # without waiting for the other end of a pipe
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise PermissionError(f"{path}: not a regular file")
        return SharedFile(opened, local, self.failures)

    def glob(self, path: str, **_: Any) -> list[str]:
        found = glob(_without_prefix(path), recursive=True)  # noqa: PTH207  # DuckDB's patterns are absolute
        return [f"{_PREFIX}{name}" for name in sorted(found) if self._is_below(name)]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        local = self._local(path)
        with _noting(self.failures, local):
            state = Path(local).stat()
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


class SharedFile:
    """An open file that several threads read at once, each from a position of its own.

    DuckDB's threads share a file, and each of them seeks before it reads: with one position, another thread would move
    it in between.
    """

    def __init__(self, descriptor: int, path: str, failures: list[OSError]) -> None:
        self._file = FileIO(descriptor)  # closes the descriptor once, however often it is asked to
        self._path, self._failures = path, failures
        self._size = os.fstat(descriptor).st_size
        self._own = threading.local()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._own.position = max(0, start + offset)
        return self.tell()

    def tell(self) -> int:
        """Return the position of this thread."""
        return int(getattr(self._own, "position", 0))

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, fewer than `size` only at the end of the file. Raise OSError."""
        start, left = self.tell(), max(0, self._size - self.tell())
        with _noting(self._failures, self._path):
            data = self._read_at(start, left if size < 0 else min(size, left))
        self._own.position = start + len(data)
        return data

    def _read_at(self, start: int, size: int) -> bytes:
        """Read until all bytes are there: a single call may return some of them only."""
        pieces: list[bytes] = []
        while size and (piece := os.pread(self._file.fileno(), size, start)):
            pieces.append(piece)
            start, size = start + len(piece), size - len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()


@contextmanager
def _noting(failures: list[OSError], path: str) -> Iterator[None]:
    """Note an OSError of the block with the path, which a read does not name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_NAMES:
            failures.append(OSError(error.errno, error.strerror, path))  # the raised one holds on to the connection
        raise


def _without_prefix(path: str) -> str:
    return re.sub(f"^{_PREFIX}", "", path)
