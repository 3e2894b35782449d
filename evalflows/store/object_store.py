"""Object stores, such as `s3://bucket/prefix`, by obstore: their objects as files. Tables are read from a mirror."""

import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import obstore
from fsspec import AbstractFileSystem
from obstore import exceptions

from evalflows.specs.errors import StorageError
from evalflows.store.layout import StoredFile
from evalflows.store.mirror import Mirror, Version

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ObjectStore

Written = TypeVar("Written")

MANIFESTS = "manifests"
"""The folder that readers need not list."""
LISTED = 1000
"""Objects that a server lists at once."""

CREATED_BYTES = 64 << 20
"""The size of a file up to which it is created only if there is none: such an upload is one request, from memory."""
_NO_VERSION = '"00000000000000000000000000000000"'


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
        self.n_downloads = 0
        self._is_conditional: bool | None = None
        self._probing = threading.Lock()

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
        with suppress(FileNotFoundError), one_line_errors(path):
            return self._entry(obstore.head(self._objects, self._key(path)))
        self._known.pop(path, None)
        if not self._list(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return {"name": path, "size": 0, "type": "directory"}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether a file or a folder is there. fsspec would take any error for a no."""
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
        with self.mirror.locked():
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
    def staged(
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
        elif self.put_if(path, data := copy.read_bytes(), None) is None and self.read(path)[0] != data:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with suppress(FileNotFoundError), self.mirror.locked():
            self.mirror.keep(self._key(path), copy, self._version(self.info(path)))

    def put_if(self, path: str, value: bytes, version: str | None) -> str | None:
        """Replace an object of a version, or create one for None. Return the new version; None if it was another."""
        mode: PutMode = "create" if version is None else {"e_tag": version}
        try:
            return self._put(path, value, mode=mode)
        except FileExistsError:
            return None

    def rm_file(self, path: str) -> None:
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = [entry["name"] for entry in self._list(path)] if recursive else [path]
        with one_line_errors(path):
            obstore.delete(self._objects, [self._key(one) for one in paths])  # no request for none
        for one in paths:
            self._known.pop(one, None)

    def mv(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """Copy a file, then delete it: object stores rename none."""
        self.cp_file(path1, path2)
        self.rm(path1)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        with one_line_errors(path1):
            obstore.copy(self._objects, self._key(path1), self._key(path2))

    def honours_conditions(self) -> bool:
        """Whether the server creates and replaces objects conditionally, as one probe per process and root shows."""
        with self._probing:
            if self._is_conditional is None:
                self._is_conditional = self._probe(f"{self.root}/leases/.probe-{secrets.token_hex(6)}")
        return self._is_conditional

    def _probe(self, path: str) -> bool:
        self._put(path, b"1")  # what fails here is not about conditions
        try:
            refused = [self.put_if(path, b"2", None), self.put_if(path, b"2", _NO_VERSION)] == [None, None]
            return refused and self.put_if(path, b"2", self.read(path)[1]) is not None
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
            entries = [self._entry(one) for one in self._objects_below(key, without)]
        names = {entry["name"] for entry in entries}
        for name in [name for name in [*self._known] if name.startswith(below) and name not in names]:
            self._known.pop(name, None)
        return entries

    def _objects_below(self, key: str, without: str | None) -> Iterator[Mapping[str, Any]]:
        left_out = f"{key}/{without}/".lstrip("/")
        for chunk in obstore.list(self._objects, key or None, chunk_size=LISTED):
            yield from chunk
            paths = [one["path"] for one in chunk]
            if without and len(chunk) == LISTED and paths[-1].startswith(left_out) and paths == sorted(paths):
                for later in obstore.list(self._objects, key or None, offset=f"{left_out[:-1]}0", chunk_size=LISTED):
                    yield from later  # "0" comes after "/"
                return

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
            return obstore.put(self._objects, self._key(path), value, mode=mode)["e_tag"] or ""

    def _key(self, path: str) -> str:
        return path.removeprefix(self.root).strip("/")


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
