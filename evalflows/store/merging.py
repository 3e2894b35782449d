"""Merge the files of an owner: rows with distinct keys, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evalflows.specs.errors import StorageError
from evalflows.store.arrow import duckdb, np, pa, pq
from evalflows.store.checksums import verify
from evalflows.store.file_states import state_of
from evalflows.store.file_systems import readable_paths, storage_errors
from evalflows.store.files import count_rows, row_groups
from evalflows.store.layout import Layout, latest_first, quoted
from evalflows.store.schemas import TABLES, schema_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = 32
"""Digits of a key that is a hash: see `derived_id`."""
_MIXER = 0x9E3779B97F4A7C15


def merge_parts(
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
    except (duckdb.Error, pa.ArrowException) as error:  # removed meanwhile
        raise StorageError(f"{paths[0].rpartition('/')[0]}: {' '.join(str(error).split())}") from error


def can_stay(layout: Layout, fs: Any, table: str, part: str) -> bool:
    """Return whether one open part can be the sealed file of its owner as it is: each key once, in today's columns.

    Its row groups are as long as those of any file. Raise StorageError if it is damaged.
    """
    if not layout.is_local:
        return False
    verify(fs, part, state_of(layout, fs, part))
    with storage_errors(part):
        is_same = pq.read_schema(part).equals(schema_of(TABLES[table].record))
    return is_same and _have_distinct_keys(fs, table, [part])


def _have_distinct_keys(fs: Any, table: str, paths: Sequence[str]) -> bool:
    """Return whether no key occurs twice, as if no part was retried; False also if the keys are not hashes of one
    column.

    Half of the digits of each are compared, so that a million keys take 8 MB.
    """
    if len(paths) <= 1 and count_rows(fs, paths) <= 1:  # the row of an owner: no DuckDB has to be made for it
        return True
    hashes: list[NDArray[np.uint64]] = []
    for path in paths if len(TABLES[table].key) == 1 else ():
        for rows in row_groups(fs, path, table, TABLES[table].key):
            for keys in filter(len, rows.column(0).chunks):
                _, ends, texts = keys.buffers()
                starts = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
                if (np.diff(starts) != DIGITS).any():
                    return False
                words = np.frombuffer(texts, np.uint64, len(keys) * DIGITS // 8, starts[0]).reshape(len(keys), -1)
                hashes.append(words[:, 0] * np.uint64(_MIXER) + words[:, 1])
    every = np.sort(np.concatenate(hashes)) if hashes else np.zeros(2, np.uint64)
    return bool((every[1:] != every[:-1]).all())


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
    found = connection.execute(
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
