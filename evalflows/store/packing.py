"""Packing: the rows of finished owners move from small files of their own into packed ones (evalflows/store/packs.py).

The packed file is written before the owner's own file is removed, and the own file goes before it as long as it exists,
so a crash between loses and doubles nothing, and another process may reopen or rewrite the owner meanwhile.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import pa
from evalflows.store.checksums import file_damage, sha256_of
from evalflows.store.file_states import owner_states, packed_states, state_of, states_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.layout import StoredFile
from evalflows.store.leases import hold_lease, holder_of
from evalflows.store.manifests import check_written, manifests, not_written
from evalflows.store.marker import note_packed
from evalflows.store.packs import owners_of, packed_rows, sealed_rows, write_pack
from evalflows.store.schemas import TABLES, columns_of
from evalflows.store.store import Store
from evalflows.store.summaries import keep_summaries, remove_summary

LEASE = "packing"
PACKED_TABLES = [name for name in TABLES if name not in ("attachments", "examples", "observations")]
"""Examples are read at random by the positions in their own file, attachments are removed one by one, and days of
observations have few and large files."""

PACK_BYTES = 32 << 20
"""Bytes of a packed file at which no more owners are added to it. Larger files of owners stay as they are."""

SETTLED_S = 60.0
"""Seconds for which a file must be unchanged: whoever sealed it may still remove its open parts."""

PACKED_FROM = 100
"""Small files of a table from which runs pack them."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What packing did: files of owners that were there, and packed files that have their rows now."""

    n_owner_files: int
    n_packed_files: int


@dataclass(frozen=True, slots=True)
class _Own:
    """The own file of an owner."""

    owner: str
    path: str
    state: object
    size: int


def pack(store: Store, *, at_least: int = 2) -> Packed:
    """Pack the finished owners of each table in which `at_least` so many have small files of their own.

    Readers and runs may go on meanwhile; another process that packs is waited for. Files of owners that are damaged, or
    that no run wrote, stay as they are.

    Raise StorageError for such a packed file, and if the store cannot be written.
    """
    with hold_lease(store, LEASE, "packing the store", wait=True):
        done = [_pack_table(store, table, at_least) for table in PACKED_TABLES]
        keep_summaries(store.layout, store.filesystem)
    return Packed(sum(packed.n_owner_files for packed in done), sum(packed.n_packed_files for packed in done))


def pack_many(store: Store) -> None:
    """Pack tables with PACKED_FROM small files or more, unless another process does. A failure is only noted."""
    layout, fs = store.layout, store.filesystem
    if len(owner_states(layout, fs, "experiments")) < PACKED_FROM or holder_of(store, LEASE):
        return
    try:
        pack(store, at_least=PACKED_FROM)
    except StorageError as error:
        print_note(f"the store was not packed: {error}")


def _pack_table(store: Store, table: str, at_least: int) -> Packed:
    files = _own_files(store, table)
    if len(files) < at_least:
        return Packed(0, 0)
    note_packed(store.layout, store.filesystem)
    done = [_pack_batch(store, table, {file.owner: file for file in batch}) for batch in _batches(files)]
    return Packed(sum(done), sum(map(bool, done)))


def _own_files(store: Store, table: str) -> list[_Own]:
    """Return the sealed files that may be packed, by owner: sound ones that a run wrote."""
    fs, states = store.filesystem, states_of(store.layout, store.filesystem, (table,))
    files = [file for path in sorted(states) if (file := StoredFile.at(path))]
    still_open = {file.owner for file in files if file.state == "open"}
    own, hashes = list[_Own](), dict[str, str]()
    for file in files:
        if file.is_sealed and file.owner not in still_open:
            state = states[file.path]
            size = _settled_size(fs, file.path)
            if size is not None and size <= PACK_BYTES // 4 and file_damage(fs, file.path, state) is None:
                own.append(_Own(file.owner, file.path, state, size))
                hashes[file.path] = sha256_of(fs, file.path, state) or ""
    known = manifests(store.layout, fs, {file.owner for file in own})
    foreign = {file.path for file, _ in not_written(store.layout, hashes, known)}
    return [file for file in own if file.path not in foreign]


def _settled_size(fs: Any, path: str) -> int | None:
    """Return the bytes of a file; None if it changed lately, or if its owner was reopened since it was listed."""
    try:
        is_settled = time.time() - fs.modified(path).timestamp() >= SETTLED_S
        return int(fs.size(path)) if is_settled else None
    except FileNotFoundError:
        return None


def _batches(files: Sequence[_Own]) -> Iterator[list[_Own]]:
    """Yield the files in lists of at most about PACK_BYTES."""
    batch: list[_Own] = []
    for file in files:
        if batch and sum(other.size for other in batch) + file.size > PACK_BYTES:
            yield batch
            batch = []
        batch.append(file)
    yield batch


def _pack_batch(store: Store, table: str, batch: Mapping[str, _Own]) -> int:
    """Add owners to the smallest packed file if it has room for them, else write a new one. Return how many.

    None, if one was reopened meanwhile: the next time will do.
    """
    layout, fs = store.layout, store.filesystem
    packs = packed_states(layout, fs, table)
    check_written(layout, fs, packs)
    sizes = {path: fs.size(path) for path in packs}
    smallest = min(sizes, key=sizes.__getitem__, default=None)
    has_room = smallest is not None and sizes[smallest] + sum(file.size for file in batch.values()) <= PACK_BYTES
    path = smallest if smallest and has_room else f"{layout.packed_folder(table)}/{secrets.token_hex(6)}.parquet"
    try:
        _rewrite(store, table, path, batch.keys(), [*batch.values()], is_there=has_room)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError) and any(not fs.exists(file.path) for file in batch.values()):
            return 0
        raise
    for other in packs:
        if other != path and not batch.keys().isdisjoint(owners_of(fs, other, packs[other])):
            _rewrite(store, table, other, batch.keys(), is_there=True)
    for file in batch.values():
        _remove(store, file)
    return len(batch)


def remove_packed(store: Store, table: str, owners: Collection[str]) -> None:
    """Remove the packed rows of owners; the lease of packing is held. Raise StorageError for a damaged file."""
    layout, fs = store.layout, store.filesystem
    packs = packed_states(layout, fs, table)
    check_written(layout, fs, packs)
    for path, state in packs.items():
        if not owners_of(fs, path, state).isdisjoint(owners):
            _rewrite(store, table, path, owners, is_there=True)


def _rewrite(
    store: Store, table: str, path: str, owners: Collection[str], added: Sequence[_Own] = (), *, is_there: bool
) -> None:
    """Write a packed file without its earlier rows of the owners, and with the present ones of those `added`."""
    layout, fs = store.layout, store.filesystem
    kept = owners_of(fs, path, state_of(layout, fs, path)) - {*owners} if is_there else frozenset[str]()
    if is_there:
        remove_summary(layout, fs, path)
    if not kept and not added:
        fs.rm_file(path)
        return
    columns = columns_of(table)

    def rows() -> Iterator[pa.Table]:
        if kept:
            yield from packed_rows(fs, path, table, columns, owners, all_but=True)
        for file in added:
            yield from sealed_rows(layout, fs, file.path, table, file.owner, columns)

    write_pack(layout, fs, path, table, rows(), kept | {file.owner for file in added})


def _remove(store: Store, own: _Own) -> None:
    """Remove an owner's own file unless it was reopened or replaced meanwhile."""
    layout, fs = store.layout, store.filesystem
    with storage_errors(own.path), suppress(FileNotFoundError):
        if state_of(layout, fs, own.path) == own.state:
            fs.rm_file(own.path)
            if layout.is_local:
                with suppress(OSError):  # another file is in it
                    Path(own.path).parent.rmdir()
