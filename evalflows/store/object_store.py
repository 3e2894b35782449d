"""Object stores as a file system, and the local mirror of their files that DuckDB reads."""

# `EVALFLOWS_HOME/mirrors/<root>-<hash>` has the files under the same paths as the store. A copy's modification time is
# derived from the object's version (its ETag), so that a copy that was altered, or that is of an earlier version, is
# not taken for the object. Whoever changes a mirror holds its lock, and lists the store with it: a mirror never goes
# back to an earlier state of the store.

import atexit
import errno
import fcntl
import hashlib
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import obstore
from fsspec import AbstractFileSystem
from obstore import exceptions

from evalflows.specs.errors import StorageError
from evalflows.specs.file_locks import try_lock
from evalflows.specs.home import home_root
from evalflows.store.layout import Layout, StoredFile

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ObjectStore

DOWNLOADS = 16
"""Files that are downloaded at once."""
LIMIT = "EVALFLOWS_MIRROR_GB"
DEFAULT_GB = 50.0
"""The size of all mirrors together, beyond which those that were not used for the longest time are removed."""
LOOK_S = 60.0
"""Seconds after which a process that downloads looks again how large the other mirrors are."""
LEFT_S = 86_400.0
"""The age of a temporary file of which its process has died."""

Written = TypeVar("Written")
Answer = TypeVar("Answer")

MANIFESTS = "manifests"
"""The folder that readers need not list."""
LISTED = 1000
"""Objects that a server lists at once."""

CREATED_BYTES = 64 << 20
"""The size of a file up to which it is created only if there is none: such an upload is one request, from memory."""
REPEATS, REPEATED_S = 5, 10.0
"""How often something is asked for whose answer breaks off, and within which time: less than requests are retried if
the server does not answer at all."""
LAGS_S = 60.0
"""How long listings may lag behind what this process has written."""
_NO_VERSION = '"00000000000000000000000000000000"'


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


@dataclass(slots=True)
class Mirror:
    """The mirror of one store. Keys are paths below its root."""

    folder: Path
    name: str  # the store's root, in messages
    looked_at: float = -math.inf  # how large the other mirrors are

    @classmethod
    def of(cls, root: str, endpoint: str) -> "Mirror":
        """Return the mirror of a root on a server."""
        digest = hashlib.sha256(f"{endpoint}\n{root}".encode()).hexdigest()[:12]
        readable = re.sub(r"[^\w.-]+", "-", root.partition("://")[2])[:60].strip("-.")
        return cls(home_root() / "mirrors" / f"{readable}-{digest}", root)

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
    def lock(self) -> Iterator[None]:
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
            with self.lock():
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
        with self.lock():
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
        if time.monotonic() < self.looked_at + LOOK_S:
            return
        self.looked_at = time.monotonic()
        for path in self._temporaries.glob("*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()
        others = [path for path in self.folder.parent.glob("*.lock") if path != self._lock_file]
        sizes = {path: sum(n_bytes for n_bytes, _ in _files(path.with_suffix("")).values()) for path in others}
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


class ObjectFiles(AbstractFileSystem):  # type: ignore[misc]
    """The objects below a store's root as files, whose paths are URLs.

    All methods raise OSError for a file that is absent or forbidden, and StorageError if the server does not answer.
    """

    cachable = False

    def __init__(self, root: str, objects: "ObjectStore", mirror: Mirror) -> None:
        super().__init__()
        self.root, self.mirror, self._objects = root, mirror, objects
        self._known: dict[str, Version] = {}
        """The version of each file as last heard."""
        self._written: dict[str, tuple[float, Version | None]] = {}
        """When this process wrote each file lately, and its version; None if it was removed."""
        self.n_downloads = 0
        self._is_conditional: bool | None = None
        self._probing = threading.Lock()
        self.claiming = threading.Lock()
        self.writer: Any = None
        """The lease of the only writer, if this process has it: of a server that ignores conditions."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        return name

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """Return what is below a path; a folder is there as long as a file is in it."""
        found = {entry["name"]: entry for entry in self._list(path)}
        if withdirs:
            inner = {parent for name in found for parent in _parents(name, path)}
            found |= {name: {"name": name, "size": 0, "type": "directory"} for name in inner}
        if maxdepth is not None:
            depth = path.rstrip("/").count("/") + maxdepth
            found = {name: entry for name, entry in found.items() if name.count("/") <= depth}
        return dict(sorted(found.items())) if detail else sorted(found)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        found = self.find(path, maxdepth=1, withdirs=True, detail=True)
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return [*found.values()] if detail else [*found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if (entry := self._head(path)) is not None:
            return entry
        if not self._list(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return {"name": path, "size": 0, "type": "directory"}

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether a file or a folder is there. fsspec would take any error for a no."""
        with suppress(FileNotFoundError):
            return bool(self.info(path))
        return False

    def modified(self, path: str) -> Any:
        return self.info(path)["modified"]

    def states(self, folders: Collection[str] | None = None) -> dict[str, object]:
        """Return the Parquet files of tables, or folders of tables (None: of all), each with its version."""
        depth = self.root.count("/") + 4
        if folders is None:
            entries = self._list(self.root, without=MANIFESTS)
        else:
            entries = [entry for folder in folders for entry in self._list(f"{self.root}/{folder}")]
        files = (entry for entry in entries if entry["name"].endswith(".parquet") and entry["name"].count("/") == depth)
        return {entry["name"]: self._version(entry) for entry in files}

    def state(self, path: str) -> object:
        """Return the version of a file. Raise FileNotFoundError if there is none."""
        return self._version(self.info(path))

    def follow(self) -> dict[str, object]:
        """Bring the mirror to the present state of the store. Return that, as `states`."""
        with self.mirror.lock():
            states = self.states()
            keys: dict[str, Version] = {self._key(path): state for path, state in states.items()}  # type: ignore[misc]
            self.mirror.follow(keys, self._download)
        return states

    def copies(self, paths: Iterable[str]) -> dict[str, object]:
        """Return the states of the mirror's copies of files; None for one that has gone."""
        return {path: self.mirror.state_of(self._key(path)) for path in paths}

    def local(self, path: str) -> Path:
        """Return the mirror's copy of a file, in the version last heard. Raise FileNotFoundError if it has gone."""
        version = self._known.get(path)
        if version is None:
            version = self._version(self.info(path))
        try:
            return self.mirror.copy(self._key(path), version, self._download)
        except FileNotFoundError:
            self._known.pop(path, None)
            raise

    def renew(self, path: str) -> None:
        """Download a file again, whatever the mirror has."""
        with suppress(FileNotFoundError):
            self.mirror.renew(self._key(path), self._download)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.read(path)[0][start:end]

    def read(self, path: str) -> tuple[bytes, str]:
        """Return a small object, and its version. Raise FileNotFoundError if there is none."""
        with one_line_errors(path):
            got = obstore.get(self._objects, self._key(path))
            return bytes(got.bytes()), got.meta["e_tag"] or ""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._put(path, value)

    @contextmanager
    def stage(
        self, path: str, write: Callable[[IO[bytes]], Written], *, replaces: bool = False
    ) -> Iterator[tuple[Written, Callable[[], None]]]:
        """Write a file to the local disk. Yield what `write` returns, and what puts the file whole."""
        with self.mirror.temporary() as copy:
            with copy.open("w+b") as sink:
                written = write(sink)
            yield written, partial(self._put_whole, path, copy, replaces)

    def _put_whole(self, path: str, copy: Path, replaces: bool) -> None:
        """Put a file, and keep its copy in the mirror. A part, whose name is new, is only created unless it `replaces`
        one."""
        file = StoredFile.at(path)
        is_new = not replaces and file is not None and file.state == "open" and copy.stat().st_size <= CREATED_BYTES
        if not (is_new and self._is_conditional):
            self._put(path, copy)
        elif self.put_if(path, copy.read_bytes(), None) is None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with suppress(FileNotFoundError), self.mirror.lock():
            self.mirror.keep(self._key(path), copy, self._version(self.info(path)))

    def put_if(self, path: str, value: bytes, version: str | None) -> str | None:
        """Replace an object of a version, or create one for None. Return the new version; None if it was another."""
        mode: PutMode = "create" if version is None else {"e_tag": version}
        try:
            return self._put(path, value, mode=mode)
        except FileExistsError:  # perhaps what this request has written, if its answer was lost and it was repeated
            with suppress(FileNotFoundError):
                there, its_version = self.read(path)
                if there == value:
                    self._written[path] = time.monotonic(), Version(len(value), its_version.strip('"'))
                    return its_version
            return None

    def rm_file(self, path: str) -> None:
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = [entry["name"] for entry in self._list(path)] if recursive else [path]
        keys = [self._key(path) for path in paths]
        with one_line_errors(path):
            _repeat(lambda: obstore.delete(self._objects, keys))  # no request for none
        for removed in paths:
            self._known.pop(removed, None)
            self._written[removed] = time.monotonic(), None

    def mv(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """Copy a file, then delete it: object stores rename none."""
        self.cp_file(path1, path2)
        self.rm(path1)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        with one_line_errors(path1):
            _repeat(lambda: obstore.copy(self._objects, self._key(path1), self._key(path2)))
        self._written[path2] = time.monotonic(), self._version(self.info(path2))

    def honours_conditions(self) -> bool:
        """Return whether the server creates and replaces objects conditionally, as one probe per process and root
        shows."""
        with self._probing:
            if self._is_conditional is None:
                self._is_conditional = self._probe(f"{self.root}/leases/.probe-{secrets.token_hex(6)}")
        return self._is_conditional

    def _probe(self, path: str) -> bool:
        self._put(path, b"1")  # what fails here is not about conditions
        try:
            refused = [self.put_if(path, b"2", None), self.put_if(path, b"2", _NO_VERSION)] == [None, None]
            return refused and self.put_if(path, b"3", self.read(path)[1]) is not None
        except (OSError, StorageError):
            self.read(path)  # if it answers this, it knows no conditions
            return False
        finally:
            self.rm(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> IO[bytes]:
        if mode != "rb":
            raise ValueError(f"got mode {mode!r}, wanted 'rb': files are written whole")
        return self.local(path).open("rb")

    def _list(self, path: str, without: str | None = None) -> list[dict[str, Any]]:
        """Return the objects below a path; of the folder `without`, which may have thousands, not all."""
        key, below = self._key(path), f"{path.rstrip('/')}/"
        with one_line_errors(path):
            listed = _repeat(lambda: [self._entry(item) for item in self._objects_below(key, without)])
        entries = {entry["name"]: entry for entry in listed}
        self._catch_up(entries, below, (f"{below}{without}/",) if without else ())
        for name in [name for name in [*self._known] if name.startswith(below) and name not in entries]:
            self._known.pop(name, None)
        return [*entries.values()]

    def _catch_up(self, entries: dict[str, dict[str, Any]], below: str, left_out: tuple[str, ...]) -> None:
        """Correct a listing by the files that this process wrote lately. What differs is asked for: either the listing
        lags, or another process has changed the file since."""
        for path, (written_at, version) in self._written.copy().items():
            if time.monotonic() - written_at > LAGS_S:
                self._written.pop(path, None)
            elif path.startswith(below) and not path.startswith(left_out):
                listed = entries.pop(path, None)
                there = listed if version == (listed and self._version(listed)) else self._head(path)
                if there is not None:
                    entries[path] = there

    def _objects_below(self, key: str, without: str | None) -> Iterator[Mapping[str, Any]]:
        left_out = f"{key}/{without}/".lstrip("/")
        for chunk in obstore.list(self._objects, key or None, chunk_size=LISTED):
            yield from chunk
            paths = [item["path"] for item in chunk]
            if without and len(chunk) == LISTED and paths[-1].startswith(left_out) and paths == sorted(paths):
                for later in obstore.list(self._objects, key or None, offset=f"{left_out[:-1]}0", chunk_size=LISTED):
                    yield from later  # "0" comes after "/"
                return

    def _head(self, path: str) -> dict[str, Any] | None:
        """Return a file as it is now; None if there is none."""
        with suppress(FileNotFoundError), one_line_errors(path):
            return self._entry(obstore.head(self._objects, self._key(path)))
        self._known.pop(path, None)
        return None

    def _entry(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        path = f"{self.root}/{meta['path']}"
        found = {"name": path, "size": meta["size"], "type": "file", "ETag": meta["e_tag"]}
        found["modified"] = meta["last_modified"]
        self._known[path] = self._version(found)
        return found

    @staticmethod
    def _version(entry: Mapping[str, Any]) -> Version:
        return Version(entry["size"], str(entry.get("ETag") or entry.get("modified")).strip('"'))

    def _download(self, key: str, target: Path) -> Version:
        self.n_downloads += 1
        with one_line_errors(f"{self.root}/{key}"), target.open("wb") as file:
            got = obstore.get(self._objects, key)
            for chunk in got:
                file.write(chunk)
        return self._version(self._entry(got.meta))

    def _put(self, path: str, value: bytes | Path, mode: "PutMode" = "overwrite") -> str:
        self._known.pop(path, None)
        with one_line_errors(path):
            etag = obstore.put(self._objects, self._key(path), value, mode=mode)["e_tag"] or ""
        size = value.stat().st_size if isinstance(value, Path) else len(value)
        self._written[path] = time.monotonic(), Version(size, etag.strip('"'))
        return etag

    def _key(self, path: str) -> str:
        return path.removeprefix(self.root).strip("/")


def _repeat(ask: Callable[[], Answer]) -> Answer:
    """Return an answer; ask again if it breaks off. What is asked for must be the same when it is done twice."""
    began, number = time.monotonic(), 0
    while True:
        try:
            return ask()
        except exceptions.GenericError:
            number += 1
            if number == REPEATS or time.monotonic() - began > REPEATED_S:
                raise


def _parents(name: str, root: str) -> Iterator[str]:
    while (name := name.rpartition("/")[0]) and len(name) > len(root.rstrip("/")):
        yield name


@contextmanager
def one_line_errors(path: str) -> Iterator[None]:
    """Raise obstore's errors, which are several lines long, as errors of one."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _one_line(error), path) from error
    except (exceptions.BaseError, ValueError) as error:  # nothing is known of the file, so it is no OSError of its own
        raise StorageError(f"{path}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """Return what happened, the server's own word for it, and which server it was."""
    text, _, _ = str(error).partition("\n\nDebug source")
    what, *_ = text.rpartition(" - ")[2].splitlines() or [type(error).__name__]
    code, server = re.search(r"<Code>(\w+)</Code>", text), re.search(r"https?://[^/\s]+", text)
    what = what.partition("<")[0].strip(" :")[:200]
    beside = ", ".join([*(code.groups() if code else ()), *([server[0]] if server else ())])
    return f"{what} ({beside})" if beside else what
