"""The file system of a store: a folder of this machine, or an object store with its mirror.

The endpoint, the region and the keys of an object store come from the usual environment variables of AWS, and are
stored nowhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evalflows.specs.errors import StorageError, describe
from evalflows.store.layout import Layout
from evalflows.store.local_files import LocalFiles

if TYPE_CHECKING:
    from evalflows.store.object_store import ObjectFiles

MEMORY = "memory"
SCHEMES = ("s3", MEMORY)

RETRY_S = 20.0
"""Seconds for which a request is repeated if the server does not answer, or fails."""
TIMEOUT_S, CONNECT_S = 60.0, 5.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

_opening = threading.Lock()


@contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError of the block as a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{os.fspath(path)}: {error.strerror or describe(error)}") from error


def files_at(layout: Layout) -> Any:
    """Return the file system of a store, with fsspec's names. Raise ValueError for a root of an unknown kind."""
    key = (layout.root, *(os.environ.get(name) for name in (*_ENDPOINTS, "AWS_ACCESS_KEY_ID")))
    with _opening:
        if key not in _opened:
            _opened[key] = LocalFiles() if layout.is_local else _object_files(layout.root)
        return _opened[key]


def is_mirrored(fs: Any) -> bool:
    """Return whether a store's files are objects, of which a mirror has copies."""
    return hasattr(fs, "mirror")


def known(fs: Any, what: str) -> dict[str, tuple[object, Any]]:
    """Return what this process knows of a store's files, by path, each with the state in which the file was."""
    found: dict[str, tuple[object, Any]] = vars(fs).setdefault(f"known_{what}", {})
    return found


def readable(layout: Layout, fs: Any) -> Layout:
    """Return the layout of the folder in which DuckDB reads a store's files: an object store's mirror."""
    return fs.mirror.layout if is_mirrored(fs) else layout


def readable_paths(fs: Any, paths: Iterable[str]) -> list[str]:
    """Return the paths at which DuckDB reads files. Raise StorageError for an object that has gone."""
    return [_copy(fs, path) if is_mirrored(fs) else path for path in paths]


def _copy(fs: ObjectFiles, path: str) -> str:
    with storage_errors(path):
        return str(fs.local(path))


def follow(fs: Any) -> None:
    """Bring an object store's mirror to its present state."""
    if is_mirrored(fs):
        fs.follow()


@contextmanager
def noting_downloads(fs: Any, note: Callable[[], object]) -> Iterator[None]:
    """Call `note` at the end of a block in which files of the mirror were downloaded."""
    before = fs.n_downloads if is_mirrored(fs) else 0
    yield
    if is_mirrored(fs) and fs.n_downloads != before:
        note()


_opened: dict[tuple[object, ...], LocalFiles | ObjectFiles] = {}
"""The files of each store that this process has opened, with what it knows of them."""


def _leave() -> None:
    """In a forked process, open stores anew, and close the files of leases: they would keep a lease after the process
    that has it was killed."""
    for fs in _opened.values():
        for file in () if is_mirrored(fs) else [*fs.locked]:
            file.close()
    _opened.clear()


os.register_at_fork(after_in_child=_leave)


def _object_files(root: str) -> ObjectFiles:
    from obstore.store import MemoryStore, from_url

    from evalflows.store.object_store import Mirror, ObjectFiles, one_line_errors

    scheme, _, rest = root.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ValueError(f"got {root!r}, wanted a folder or s3://bucket/prefix")
    if scheme == MEMORY:
        return ObjectFiles(root, MemoryStore(), Mirror.temporary_of(root))
    endpoint = next((url for name in _ENDPOINTS if (url := os.environ.get(name))), "")
    is_local = urlsplit(endpoint).hostname in _THIS_MACHINE
    if endpoint.startswith("http://") and not is_local and not os.environ.get("AWS_ALLOW_HTTP"):
        raise ValueError(f"AWS_ENDPOINT_URL: got {endpoint}, wanted https://, or AWS_ALLOW_HTTP=true beside it")
    client: Any = {"timeout": timedelta(seconds=TIMEOUT_S), "connect_timeout": timedelta(seconds=CONNECT_S)}
    # the time is what limits: ten retries, the default, may be over within two seconds
    retries: Any = {"retry_timeout": timedelta(seconds=RETRY_S), "max_retries": 1000}
    with one_line_errors(root):
        objects = from_url(
            root, client_options=client | ({"allow_http": True} if is_local else {}), retry_config=retries
        )
    return ObjectFiles(root, objects, Mirror.of(root, endpoint))
