"""Parquet files with the store's format: written whole or not at all, and errors of the disk named with their path."""

import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import StorageError, describe
from evalflows.store.checksums import BLANK, CHECKSUM_KEY, put_checksum
from evalflows.store.layout import Layout

ROWS_PER_GROUP = 50_000
FORMAT = 5
"""Format of the stored files. A change of columns increases it, and adds a step to store/migration.py."""
OLDEST = 5
"""The oldest format that `evalflows migrate` can rewrite."""
FORMAT_KEY = b"evalflows.format"
"""The key of the format in a file's metadata."""


@contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError of the block as a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{os.fspath(path)}: {error.strerror or describe(error)}") from error


def format_of(marker: bytes) -> int:
    """Return the format that a store's marker states, at most FORMAT.

    Raise ValueError for a marker without a format, and for a format that is newer or too old to migrate.
    """
    try:
        written = int(json.loads(marker)["format"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"got {marker[:40]!r} in evalflows.json, wanted the format of a store") from None
    if written > FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: a newer evalflows wrote it, so update evalflows")
    if written < OLDEST:
        raise ValueError(f"got format {written}, wanted {FORMAT}: too old, `evalflows migrate` starts at {OLDEST}")
    return written


def write_file(layout: Layout, fs: fsspec.AbstractFileSystem, path: str, data: pa.Table) -> None:
    """Write one Parquet file atomically; on a local disk, also durably."""
    if layout.is_local:
        _write_durably(Path(path), data, file_mode(Path(layout.root)))
    else:
        sink = io.BytesIO()
        _write_parquet(data, sink)
        put_checksum(sink)
        fs.pipe_file(path, sink.getvalue())


def _write_parquet(data: pa.Table, sink: IO[bytes]) -> None:
    """Write a Parquet file with the format and the place of the checksum in its metadata."""
    own = {FORMAT_KEY: str(FORMAT).encode(), CHECKSUM_KEY: BLANK}
    data = data.replace_schema_metadata({**(data.schema.metadata or {}), **own})
    pq.write_table(data, sink, compression="zstd", row_group_size=ROWS_PER_GROUP)


def file_mode(root: Path) -> int:
    """Return the permissions of a store's files: the owner's alone, and those that its folder gives to others.

    A new store's folder is private, since the files hold texts; `chmod g+rx` on it shares what is written from then on.
    """
    return 0o600 | (root.stat().st_mode & 0o066)


def _write_durably(target: Path, data: pa.Table, mode: int) -> None:
    """Write to a temporary file, sync it to disk, then rename: no reader ever sees a partial file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b") as file:
            _write_parquet(data, file)
            put_checksum(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
