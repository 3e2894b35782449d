"""Opening the root of a store: a folder, an object store such as `s3://bucket/prefix`, or `memory://name` for tests.

The endpoint, the region and the keys of an object store come from the usual environment variables of AWS, and are
stored nowhere.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import fsspec
from obstore.store import MemoryStore, from_url

from evalflows.store.layout import Layout
from evalflows.store.mirror import Mirror
from evalflows.store.object_store import ObjectFiles, one_line_errors
from evalflows.store.parquet_files import storage_errors

MEMORY = "memory"
SCHEMES = ("s3", MEMORY)

RETRY_S = 20.0
"""Seconds for which a request is repeated if the server does not answer, or fails."""
TIMEOUT_S, CONNECT_S = 60.0, 5.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def files_at(layout: Layout) -> Any:
    """Return the file system of a store, in fsspec's terms. Raise ValueError for a root of an unknown kind."""
    if layout.is_local:
        return fsspec.filesystem("file")
    key = (os.getpid(), layout.root, *(os.environ.get(name) for name in (*_ENDPOINTS, "AWS_ACCESS_KEY_ID")))
    with _opening:
        if key not in _opened:
            _opened[key] = _object_files(layout.root)
        return _opened[key]


def readable(layout: Layout, fs: Any) -> Layout:
    """Return the layout of the folder in which DuckDB reads a store's files: an object store's mirror."""
    return fs.mirror.layout if isinstance(fs, ObjectFiles) else layout


def readable_paths(fs: Any, paths: Iterable[str]) -> list[str]:
    """Return the paths at which DuckDB reads files. Raise StorageError for an object that has gone."""
    return [_copy(fs, path) if isinstance(fs, ObjectFiles) else path for path in paths]


def _copy(fs: ObjectFiles, path: str) -> str:
    with storage_errors(path):
        return str(fs.local(path))


def follow(fs: Any) -> None:
    """Bring an object store's mirror to its present state."""
    if isinstance(fs, ObjectFiles):
        fs.follow()


@contextmanager
def noting_downloads(fs: Any, note: Callable[[], object]) -> Iterator[None]:
    """Call `note` at the end of a block in which files of the mirror were downloaded."""
    before = fs.n_downloads if isinstance(fs, ObjectFiles) else 0
    yield
    if isinstance(fs, ObjectFiles) and fs.n_downloads != before:
        note()


_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_opened: dict[tuple[object, ...], ObjectFiles] = {}
_opening = threading.Lock()


def forget_memory() -> None:
    """Forget the stores in memory."""
    with _opening:
        for key in [key for key, files in _opened.items() if files.root.startswith(f"{MEMORY}://")]:
            _opened.pop(key).mirror.remove()


def _object_files(root: str) -> ObjectFiles:
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
    retries: Any = {"retry_timeout": timedelta(seconds=RETRY_S)}
    with one_line_errors(root):
        objects = from_url(
            root, client_options=client | ({"allow_http": True} if is_local else {}), retry_config=retries
        )
    return ObjectFiles(root, objects, Mirror.of(root, endpoint))
