"""Packed files of finished owners, and sealed rows, packed or in files of their own.

`<table>/packed/all/<12 hexadecimal digits>.parquet` holds sealed rows of the owners that its metadata list. An owner
that has a file of its own, sealed or open, is read from that: its packed rows are of an earlier state.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.arrow import np, pa, pc
from evalflows.store.checksums import footer_of, verify
from evalflows.store.file_states import packed_states, state_of
from evalflows.store.file_systems import known, storage_errors
from evalflows.store.files import open_parquet, row_groups, row_groups_of, write_file
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.schemas import TABLES, schema_of, to_column

OWNERS_KEY = b"evalflows.owners"
"""The key of the owners in a packed file's metadata: a JSON list."""


def owners_of(fs: Any, path: str, state: object = None) -> frozenset[str]:
    """Return the owners in a packed file; of a known state, the file is opened once.

    Raise OSError if its footer cannot be read.
    """
    owners: frozenset[str]
    before, owners = known(fs, "owners").get(path, (None, frozenset()))
    if state is None or before != state:
        with fs.open(path, "rb") as file:
            owners = _listed(footer_of(file), path)
        known(fs, "owners")[path] = state, owners
    return owners


def _listed(footer: bytes, path: str) -> frozenset[str]:
    """Return the owners that a footer lists, without pyarrow, which takes longer to import than a store to search.

    In the Thrift encoding, the value follows its key after a byte of its type and its length, in groups of seven bits.
    """
    _, _, rest = footer.rpartition(OWNERS_KEY)
    n = next((n for n, byte in enumerate(rest[1:], 1) if byte < 1 << 7), 0)
    length = sum((byte & 127) << (7 * place) for place, byte in enumerate(rest[1 : n + 1]))
    try:
        return frozenset(json.loads(rest[n + 1 : n + 1 + length]))
    except (ValueError, TypeError) as error:
        raise OSError(f"{path}: got a footer that lists no owners") from error


def packed_owners(layout: Layout, fs: Any, table: str) -> dict[str, tuple[str, object]]:
    """Return the owners in a table's packed files, each with its file and the file's state. Damaged files have none."""
    found: dict[str, tuple[str, object]] = {}
    for path, state, owners in _readable_packs(layout, fs, table):
        found |= dict.fromkeys(owners, (path, state))
    return found


def packs_with(
    layout: Layout, fs: Any, table: str, owners: Collection[str], but: Collection[str]
) -> dict[str, object] | None:
    """Return the packed files that may have rows of owners, with their states; None if one may have rows of `but`."""
    found = {
        path: state
        for path, state in packed_states(layout, fs, table).items()
        if _may_have(fs, path, state, frozenset(owners))
    }
    return None if any(_may_have(fs, path, state, frozenset(but)) for path, state in found.items()) else found


def packed_file(layout: Layout, fs: Any, table: str, owner: str) -> str | None:
    """Return the packed file that has an owner's rows; None if there is none."""
    return next((path for path, _, owners in _readable_packs(layout, fs, table) if owner in owners), None)


def _readable_packs(layout: Layout, fs: Any, table: str) -> Iterator[tuple[str, object, frozenset[str]]]:
    """Yield the packed files of a table with their states and owners, without those replaced meanwhile or damaged."""
    for path, state in packed_states(layout, fs, table).items():
        with suppress(OSError):
            yield path, state, owners_of(fs, path, state)


def files_of(fs: Any, states: Mapping[str, object], owners: Collection[str], tables: Collection[str]) -> Iterator[str]:
    """Yield the files, among these with their states, that rows of the owners are read from.

    A packed file whose footer cannot be read may be one of them.
    """
    names = frozenset(owners)
    # parsing every path would take longer than most queries
    mentioned = (path for path in states if path.split("/")[-2].partition("=")[2] in names)
    files = [file for path in mentioned if (file := StoredFile.at(path)) and file.table in tables]
    sealed = {(file.table, file.owner) for file in files if file.is_sealed}
    yield from (file.path for file in files if file.is_sealed or (file.table, file.owner) not in sealed)
    unpacked: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        unpacked[file.table].add(file.owner)
    packs = (pack for path in states if "/packed/all/" in path and (pack := StoredFile.at(path)))
    for pack in packs:
        if pack.table in tables and _may_have(fs, pack.path, states[pack.path], names - unpacked[pack.table]):
            yield pack.path


def _may_have(fs: Any, path: str, state: object, owners: frozenset[str]) -> bool:
    try:
        return bool(owners) and not owners.isdisjoint(owners_of(fs, path, state))
    except OSError:
        return True


def write_pack(
    layout: Layout, fs: Any, path: str, table: str, tables: Iterable[pa.Table], owners: Collection[str]
) -> None:
    """Write a packed file atomically, in place of an earlier one of this path."""
    owned = {OWNERS_KEY: json.dumps(sorted(owners)).encode()}
    with storage_errors(path):
        name = partial(name_file, layout, fs)
        write_file(layout, fs, path, schema_of(TABLES[table].record), tables, owned, before=name)


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
        is_of_them = pc.is_in(names, value_set=to_column(sorted(owners), pa.string()))
        wanted = pc.indices_nonzero(pc.invert(is_of_them) if all_but else is_of_them)
        yield from row_groups_of(parquet, table, columns, np.from_dlpack(wanted).astype(np.int64))  # without pandas
