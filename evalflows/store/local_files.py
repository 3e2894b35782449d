"""The local file system as that of a store: what the store asks of a file system, under the names that fsspec gives it.

fsspec itself, with asyncio and ssl, takes longer to load than all else that a command needs which only reads.
"""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import IO, Literal
from weakref import WeakSet


class LocalFiles:
    """The local file system, for the files of one store. Paths are absolute."""

    def __init__(self) -> None:
        self.locked = WeakSet[IO[bytes]]()
        """The files of the leases that this process has."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110  # False also where a folder forbids to look

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)

    def open(self, path: str, mode: Literal["rb"]) -> IO[bytes]:
        return Path(path).open(mode)

    def cat_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def pipe_file(self, path: str, value: bytes) -> None:
        Path(path).write_bytes(value)

    def ls(self, path: str, *, detail: Literal[False]) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries]

    def glob(self, pattern: str) -> list[str]:
        return sorted(glob(pattern, include_hidden=True))  # noqa: PTH207  # patterns are absolute

    def find(self, path: str) -> list[str]:
        """Return the paths of all files below a folder; links are not followed, nor folders read that forbid it."""
        return sorted(_below(path))

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def mv(self, path: str, to: str) -> None:
        shutil.move(path, to)

    def rm_file(self, path: str) -> None:
        Path(path).unlink()

    def rm(self, path: str, *, recursive: bool = False) -> None:
        (shutil.rmtree if recursive else Path.unlink)(Path(path))


def _below(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [*entries]
    except OSError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)
        else:
            yield entry.path
