"""Write and read the store's Parquet files: written whole or not at all, read by row groups."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from evalflows.specs.errors import StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import duckdb, np, pa, pq
from evalflows.store.checksums import BLANK, CHECKSUM_KEY, Content, damage_error, put_checksum, sha256_of
from evalflows.store.file_states import state_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.layout import Layout, files
from evalflows.store.schemas import TABLES, as_schema, schema_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Written = TypeVar("Written")

ROWS_PER_GROUP, BYTES_PER_GROUP = 50_000, 8 << 20
"""The size of a row group, in rows and in bytes before compression: what a reader has in memory at a time."""
FORMAT = 21
"""Format of the stored files. A change of columns increases it."""
PACKED_FORMAT = 22
"""Format that the marker of a store with packed files states: versions that know only FORMAT would miss their rows."""
FORMAT_KEY = b"evalflows.format"
"""The key of the format in a file's metadata."""


def format_of(marker: bytes) -> int:
    """Return the format of the files of a store, by its marker: FORMAT. Raise ValueError for any other."""
    try:
        written = int(json.loads(marker)["format"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"got {marker[:40]!r} in evalflows.json, wanted the format of a store") from None
    if written > PACKED_FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: a newer evalflows wrote it, so update evalflows")
    if written < FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: a version before the first release wrote it")
    return FORMAT


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is written whole under a temporary name. `place` gives it its own, atomically."""

    path: str
    content: Content
    place: Callable[[], None]


def write_file(
    layout: Layout,
    fs: Any,
    path: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
    *,
    regroup: bool = True,
    replaces: bool = False,
    before: Callable[[StagedFile], object] = lambda _: None,
) -> None:
    """Write one Parquet file from tables atomically, as `stage_file`; `before` is called before it is there."""
    with stage_file(layout, fs, path, schema, tables, metadata, regroup=regroup, replaces=replaces) as staged:
        before(staged)
        staged.place()


@contextmanager
def stage_file(
    layout: Layout,
    fs: Any,
    path: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
    *,
    regroup: bool = True,
    replaces: bool = False,
) -> Iterator[StagedFile]:
    """Write one Parquet file from tables, on a local disk durably; it is removed at the end unless it was placed.

    `metadata` are added to its own. Unless `regroup`, each table is a row group. In an object store, a part may have
    the name of one that it `replaces`.
    """
    write = partial(
        _write_with_checksum,
        partial(_write_parquet, schema, _row_groups(tables) if regroup else tables, metadata=metadata),
    )
    if layout.is_local:
        staging = stage_durably(Path(path), write, file_mode(Path(layout.root)))
    else:
        staging = fs.stage(path, write, replaces=replaces)
    with staging as (content, place):
        yield StagedFile(path, content, place)


@contextmanager
def stage_renamed(layout: Layout, fs: Any, part: str, path: str) -> Iterator[StagedFile]:
    """Take a file in a folder for a staged one, as it is: `place` gives it its name. Raise StorageError if damaged."""
    digest = sha256_of(fs, part, state_of(layout, fs, part))
    if digest is None:
        raise StorageError(f"{part}: the file is gone, wanted the rows of its owner")
    with storage_errors(part):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield StagedFile(path, Content(digest, fs.size(part)), partial(_rename, Path(part), Path(path)))


def _write_parquet(
    schema: pa.Schema, groups: Iterable[pa.Table], sink: IO[bytes], *, metadata: Mapping[bytes, bytes]
) -> None:
    """Write a Parquet file of row groups with the format and the place of the checksum in its metadata."""
    own = {FORMAT_KEY: str(FORMAT).encode(), CHECKSUM_KEY: BLANK}
    whole = schema.with_metadata({**(schema.metadata or {}), **own})
    with pq.ParquetWriter(sink, whole, compression="zstd", write_page_checksum=True) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
        if metadata:
            writer.add_key_value_metadata(dict(metadata))  # those of the schema are written twice


def _write_with_checksum(write: Callable[[IO[bytes]], None], file: IO[bytes]) -> Content:
    write(file)
    content = put_checksum(file)
    file.flush()
    return content


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of the tables as row groups."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for piece in _pieces(table):
            pending.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
                yield pa.concat_tables(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of a table that are no larger than a row group."""
    fitting = table.num_rows * BYTES_PER_GROUP // max(table.nbytes, 1)
    step = max(1, min(ROWS_PER_GROUP, fitting))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def file_mode(root: Path) -> int:
    """Return the permissions of a store's files: the owner's alone, and those that its folder gives to others.

    A new store's folder is private, since the files hold texts; `chmod g+rx` on it shares what is written from then on.
    """
    return 0o600 | (root.stat().st_mode & 0o066)


def write_bytes(layout: Layout, fs: Any, path: str, content: bytes) -> None:
    """Write a small file whole; in a folder, it is on disk when this returns. Raise StorageError if that fails."""
    with storage_errors(path):
        if not layout.is_local:
            fs.pipe_file(path, content)
            return
        with stage_durably(Path(path), lambda file: file.write(content), file_mode(Path(layout.root))) as (_, place):
            place()


@contextmanager
def stage_durably(
    target: Path, write: Callable[[IO[bytes]], Written], mode: int
) -> Iterator[tuple[Written, Callable[[], None]]]:
    """Write to a temporary file and sync it to disk. Yield what `write` returns, and what renames the file.

    No reader ever sees a partial file. A file that is not renamed is removed at the end.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b") as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        yield written, partial(_rename, temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _rename(temporary: Path, target: Path) -> None:
    temporary.replace(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_parquet(fs: Any, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file whose pages are verified as they are read. Raise StorageError for one that cannot be read."""
    with storage_errors(path), fs.open(path, "rb") as file:
        try:
            yield pq.ParquetFile(file, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the system
                raise
            raise damage_error(path, " ".join(str(error).split())[:120]) from error


def row_groups(
    fs: Any, path: str, table: str, columns: Sequence[str], numbers: NDArray[np.int64] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, or only those with these numbers, one row group at a time."""
    with open_parquet(fs, path) as parquet:
        yield from row_groups_of(parquet, table, columns, numbers)


def row_groups_of(
    parquet: pq.ParquetFile, table: str, columns: Sequence[str], numbers: NDArray[np.int64] | None = None
) -> Iterator[pa.Table]:
    """Yield the same rows of an open file."""
    schema = pa.schema([schema_of(TABLES[table].record).field(name) for name in columns])
    start = 0
    for group in range(parquet.num_row_groups):
        stop = start + parquet.metadata.row_group(group).num_rows
        within = None if numbers is None else numbers[(numbers >= start) & (numbers < stop)] - start
        if within is None or len(within):
            rows = parquet.read_row_group(group, columns=list(columns))
            kept = rows if within is None or len(within) == stop - start else rows.take(_of_arrow(within))
            yield as_schema(kept.select(columns), schema)
        start = stop


def _of_arrow(numbers: NDArray[np.int64]) -> pa.Array:
    """Return numbers as Arrow's; its own conversion imports pandas."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def count_rows(fs: Any, paths: Iterable[str]) -> int:
    """Return the number of rows in files, as their footers say. Raise StorageError for one that cannot be read."""
    count = 0
    for path in paths:
        with storage_errors(path), fs.open(path, "rb") as file:
            count += pq.read_metadata(file).num_rows
    return count


def last_recorded(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> datetime | None:
    """Return the newest time of recording in these parts."""
    newest = connection.execute(f"select max(recorded_at) from {files(list(paths))}").fetchone()
    return newest[0] if newest else None
