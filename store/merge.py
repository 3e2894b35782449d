"""Merging an owner's parts: each key once, one row group in memory at a time."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evalflows.specs.errors import StorageError
from evalflows.store.file_states import state_of
from evalflows.store.layout import Layout, files, latest_first, quoted
from evalflows.store.parquet_files import storage_errors
from evalflows.store.roots import readable_paths
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.verification import verify

DIGITS = 32
"""Digits of a key that is a hash: see `derived_id`."""
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def merged(
    connect: Callable[[], duckdb.DuckDBPyConnection],
    layout: Layout,
    fs: Any,
    table: str,
    paths: Sequence[str],
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield the rows of the parts, in their order, without those that a later row of the same key replaces.

    Raise StorageError if a part is damaged, gone, or cannot be read.
    """
    for path in paths:
        verify(fs, path, state_of(layout, fs, path))
    try:
        if _have_distinct_keys(fs, table, paths):
            for path in paths:
                yield from row_groups(fs, path, table, columns)
        else:
            with connect() as connection:
                for path, numbers in _kept(connection, fs, table, paths):
                    yield from row_groups(fs, path, table, columns, numbers)
    except (duckdb.Error, pa.ArrowException) as error:  # files from before checksums, or removed meanwhile
        raise StorageError(f"{paths[0].rpartition('/')[0]}: {' '.join(str(error).split())}") from error


def row_groups(
    fs: Any, path: str, table: str, columns: Sequence[str], numbers: NDArray[np.int64] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, or only those with these numbers, one row group at a time."""
    with storage_errors(path), fs.open(path, "rb") as file:
        yield from row_groups_of(pq.ParquetFile(file), table, columns, numbers)


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
            kept = rows if within is None or len(within) == stop - start else rows.take(within)
            yield kept.select(columns).cast(schema)
        start = stop


def _have_distinct_keys(fs: Any, table: str, paths: Sequence[str]) -> bool:
    """Whether no key occurs twice, as if no part was retried; False also if the keys are not hashes of one column.

    Half of the digits of each are compared, so that a million keys take 8 MB.
    """
    if len(paths) <= 1 and count_rows(fs, paths) <= 1:  # the row of an owner: no DuckDB has to be made for it
        return True
    hashes: list[NDArray[np.uint64]] = []
    for path in paths if len(TABLES[table].key) == 1 else ():
        for rows in row_groups(fs, path, table, TABLES[table].key):
            try:
                keys = [chunk.cast(pa.binary(DIGITS)) for chunk in rows.column(0).chunks if len(chunk)]
            except pa.ArrowInvalid:  # of another length
                return False
            for chunk in keys:
                words = np.frombuffer(chunk.buffers()[1], np.uint64).reshape(len(chunk), -1)
                hashes.append(words[:, 0] * _MIXER + words[:, 1])
    every = np.sort(np.concatenate(hashes)) if hashes else np.zeros(2, np.uint64)
    return bool((every[1:] != every[:-1]).all())


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


def _kept(
    connection: duckdb.DuckDBPyConnection, fs: Any, table: str, paths: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each part with the numbers of its rows that no later row replaces, in order.

    Only the keys are read, since a query that compares whole rows would hold all of them in memory.
    """
    if not paths:
        return
    read = readable_paths(fs, paths)
    listed = ", ".join(map(quoted, read))
    found = connection.sql(
        f"""select filename, file_row_number from (
                select * from read_parquet([{listed}], filename = true, file_row_number = true,
                                           hive_partitioning = false))
            qualify row_number() over ({latest_first(table)}, filename desc, file_row_number desc) = 1"""
    ).fetchnumpy()
    names, numbers = np.asarray(found["filename"], dtype=object), np.asarray(found["file_row_number"])
    for path, name in zip(paths, read, strict=True):
        of_path = np.sort(numbers[names == name])
        if len(of_path):
            yield path, of_path
