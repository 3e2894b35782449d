"""Writing the sealed files of an owner: all of them under temporary names, their one manifest, then their own names."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from evalflows.store.layout import Layout
from evalflows.store.manifests import WRITTEN, Written, write_manifest
from evalflows.store.parquet_files import StagedFile, staged_file, storage_errors
from evalflows.store.schemas import TABLES, schema_of

Contents = Iterable[tuple[str, Iterable[pa.Table]]]
"""Tables, each with the rows of an owner."""


def write_sealed(
    layout: Layout,
    fs: Any,
    owner: str,
    contents: Contents,
    check: Callable[[], None],
    written: Written = WRITTEN,
    *,
    at_once: bool = False,
) -> None:
    """Write the sealed files of an owner, and give them their names in the order of the tables.

    `check` is called before anything is written. If `at_once`, the tables are written on threads.

    Raise StorageError if that fails; files that have their names by then stay.
    """
    with ExitStack() as stack:
        waiting = (_staged(layout, fs, table, owner, rows, check) for table, rows in contents)
        staged = _at_once(stack, [*waiting]) if at_once else [stack.enter_context(one) for one in waiting]
        write_manifest(layout, fs, staged, written)
        for one in staged:
            with storage_errors(one.path):
                one.place()


def _at_once(stack: ExitStack, waiting: list[AbstractContextManager[StagedFile]]) -> list[StagedFile]:
    """Write files on a thread each: Arrow and DuckDB use another core."""
    with ThreadPoolExecutor(max(len(waiting), 1)) as threads:
        return [*threads.map(stack.enter_context, waiting)]


@contextmanager
def _staged(
    layout: Layout, fs: Any, table: str, owner: str, rows: Iterable[pa.Table], check: Callable[[], None]
) -> Iterator[StagedFile]:
    path = layout.sealed(table, owner)
    with storage_errors(path):
        check()
        with staged_file(layout, fs, path, schema_of(TABLES[table].record), rows) as staged:
            yield staged
