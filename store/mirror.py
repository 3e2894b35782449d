"""A local copy of an object store's files, which DuckDB reads: a hundred times faster than object by object.

`EVALFLOWS_HOME/mirrors/<root>-<hash>` has the files under the same paths as the store. A copy's modification time is
derived from the object's version (its ETag), so that a copy that was altered, or that is of an earlier version, is not
taken for the object. Whoever changes a mirror holds its lock, and lists the store with it: a mirror never goes back to
an earlier state of the store.
"""

import atexit
import fcntl
import hashlib
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from evalflows.specs.errors import StorageError
from evalflows.specs.file_locks import try_lock
from evalflows.store.layout import Layout

DOWNLOADS = 16
"""Files that are downloaded at once."""
LIMIT = "EVALFLOWS_MIRROR_GB"
DEFAULT_GB = 50.0
"""The size of all mirrors together, beyond which those that were not used for the longest time are removed."""
LOOK_S = 60.0
"""Seconds after which a process that downloads looks again how large the other mirrors are."""
LEFT_S = 86_400.0
"""The age of a temporary file of which its process has died."""

_looked: dict[Path, float] = {}


class Version(NamedTuple):
    """The version of an object."""

    size: int
    etag: str

    @property
    def mtime_ns(self) -> int:
        """The modification time of its copy, in whole seconds before 2038, which every file system can keep."""
        digest = hashlib.sha256(self.etag.encode()).digest()
        return int.from_bytes(digest[:4], "big") % 2**31 * 10**9


Download = Callable[[str, Path], Version]
"""Writes an object, given by its key, to a file. Raises FileNotFoundError if there is none."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """The mirror of one store. Keys are paths below its root."""

    folder: Path
    name: str  # the store's root, in messages

    @classmethod
    def of(cls, root: str, endpoint: str) -> "Mirror":
        """Return the mirror of a root on a server."""
        digest = hashlib.sha256(f"{endpoint}\n{root}".encode()).hexdigest()[:12]
        readable = re.sub(r"[^\w.-]+", "-", root.partition("://")[2])[:60].strip("-.")
        return cls(_home() / f"{readable}-{digest}", root)

    @classmethod
    def temporary_of(cls, root: str) -> "Mirror":
        """Return a mirror that lasts as long as this process."""
        mirror = cls(Path(mkdtemp(prefix="evalflows-mirror-")) / "store", root)
        atexit.register(mirror.remove, os.getpid())
        return mirror

    @property
    def layout(self) -> Layout:
        return Layout(str(self.folder))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the mirror, alone among threads and processes."""
        self._make_home()
        with self._lock_file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.utime(file.fileno())
            yield

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Yield the path of a file that is removed at the end, unless it was renamed."""
        self._make_home()
        self._temporaries.mkdir(mode=0o700, exist_ok=True)
        path = self._temporaries / secrets.token_hex(8)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def follow(self, wanted: Mapping[str, Version], download: Download) -> None:
        """Remove and download files until the mirror has those that are `wanted`. The caller holds the lock.

        A file that has gone meanwhile is left out. Raise StorageError if the mirror would be too large.
        """
        there = _files(self.folder)
        for key in there.keys() - wanted.keys():
            (self.folder / key).unlink(missing_ok=True)
        missing = [key for key, version in wanted.items() if there.get(key) != (version.size, version.mtime_ns)]
        if not missing:
            return
        self._make_room(sum(version.size for version in wanted.values()))

        def fetch(key: str) -> None:
            with suppress(FileNotFoundError):
                self._fetch(key, download)

        with ThreadPoolExecutor(min(DOWNLOADS, len(missing))) as pool:
            for _ in pool.map(fetch, missing):
                pass

    def copy(self, key: str, version: Version, download: Download) -> Path:
        """Return the copy of an object, downloaded if it is not there in this version."""
        if not self._has(key, version):
            with self.locked():
                if not self._has(key, version):
                    self._fetch(key, download)
        return self.folder / key

    def state_of(self, key: str) -> object:
        """Return what differs for each copy of an object, however often it is fetched; None if there is no copy."""
        with suppress(FileNotFoundError):
            stat = os.stat(f"{self.folder}/{key}")  # noqa: PTH116  # of thousands
            return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
        return None

    def renew(self, key: str, download: Download) -> None:
        """Download an object again."""
        with self.locked():
            self._fetch(key, download)

    def keep(self, key: str, path: Path, version: Version) -> None:
        """Make a local file the copy of an object, if this is its version. The caller holds the lock."""
        if path.stat().st_size == version.size:
            self._place(key, path, version)

    def remove(self, pid: int | None = None) -> None:
        """Remove the mirror for good; in another process than `pid`, do nothing."""
        if pid in (None, os.getpid()):
            shutil.rmtree(self.folder.parent, ignore_errors=True)

    def _make_home(self) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _has(self, key: str, version: Version) -> bool:
        with suppress(OSError):
            stat = (self.folder / key).stat()
            return (stat.st_size, stat.st_mtime_ns) == (version.size, version.mtime_ns)
        return False

    def _fetch(self, key: str, download: Download) -> None:
        with self.temporary() as path:
            self._place(key, path, download(key, path))

    def _place(self, key: str, path: Path, version: Version) -> None:
        target = self.folder / key
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(path, ns=(time.time_ns(), version.mtime_ns))
        path.replace(target)

    def _make_room(self, size: int) -> None:
        """Remove other mirrors, and what a killed process has left, if all would be larger than the limit."""
        limit = float(os.environ.get(LIMIT) or DEFAULT_GB) * 1e9
        if size > limit:
            needed = f"the copy of the store needs {size / 1e9:.1f} GB, {LIMIT} allows {limit / 1e9:g}"
            raise StorageError(f"{self.name}: {needed}")
        if time.monotonic() < _looked.get(self.folder, -math.inf) + LOOK_S:
            return
        _looked[self.folder] = time.monotonic()
        for path in self._temporaries.glob("*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()
        others = [path for path in self.folder.parent.glob("*.lock") if path != self._lock_file]
        sizes = {path: sum(one for one, _ in _files(path.with_suffix("")).values()) for path in others}
        for path in sorted(others, key=lambda path: path.stat().st_mtime):
            if size + sum(sizes.values()) <= limit:
                break
            with path.open("ab") as file:
                if try_lock(file):
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                    sizes.pop(path)

    @property
    def _lock_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.lock")

    @property
    def _temporaries(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.tmp")


def _home() -> Path:
    home = os.environ.get("EVALFLOWS_HOME")
    return (Path(home).absolute() if home else Path.home() / ".evalflows") / "mirrors"


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files below a folder, by their paths in it, each with its size and modification time."""
    found: dict[str, tuple[int, int]] = {}
    start = len(str(folder)) + 1
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                stat = os.stat(f"{path}/{name}")  # noqa: PTH116  # of thousands
                found[f"{path}/{name}"[start:]] = stat.st_size, stat.st_mtime_ns
    return found
