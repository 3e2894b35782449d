"""The sealed rows of owners, packed or in files of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.arrow import np, pa, pc
from evalflows.store.checksums import verify
from evalflows.store.file_states import state_of
from evalflows.store.files import open_parquet, row_groups, row_groups_of
from evalflows.store.layout import Layout
from evalflows.store.schemas import TABLES


def sealed_rows(
    layout: Layout, fs: Any, path: str, table: str, owner: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield an owner's rows in a sealed file, its own or a packed one, verified, one row group at a time.

    Raise StorageError if they are no longer there: another process has reopened the owner meanwhile.
    """
    verify(fs, path, state_of(layout, fs, path))
    if path == layout.sealed(table, owner):
        yield from row_groups(fs, path, table, columns)
        return
    count = 0
    for rows in packed_rows(fs, path, table, columns, {owner}):
        count += rows.num_rows
        yield rows
    if not count:
        raise StorageError(
            f"{path}: got no rows of {owner}, wanted its packed rows: another process moved them, so try again"
        )


def packed_rows(
    fs: Any, path: str, table: str, columns: Sequence[str], owners: Collection[str], *, all_but: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of owners in a packed file, or those of all others, one row group at a time.

    The file is opened once: another of the same name may take its place at any time.
    """

    column = TABLES[table].owner
    with open_parquet(fs, path) as parquet:
        names = parquet.read(columns=[column]).column(0)
        is_of_them = pc.is_in(names, value_set=pa.array(sorted(owners), pa.string())).to_numpy()
        yield from row_groups_of(parquet, table, columns, np.flatnonzero(is_of_them != all_but))
