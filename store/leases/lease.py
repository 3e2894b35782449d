"""Leases: one process at a time works on the experiments of a run group, or on a comparison."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.safe_text import print_note
from evalflows.store.leases.file_lease import FileLease
from evalflows.store.leases.holder import Holder
from evalflows.store.leases.object_lease import ObjectLease
from evalflows.store.leases.one_writer import NAME, claim
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import storage_errors


class Lease(Protocol):
    """A lease that this process may take. Threads of one process exclude each other too."""

    @property
    def poll_s(self) -> float:
        """Seconds between two attempts to take it."""

    def take(self) -> Holder | None:
        """Take the lease. Return None, or who has it."""

    def holder(self) -> Holder | None:
        """Return who has the lease, without taking it; None if it is free."""

    def check(self) -> None:
        """Raise StorageError if the lease was lost to another process."""

    def release(self) -> None:
        """Give the lease back, if this process has it."""


@contextmanager
def leased(
    store: Store,
    name: str,
    work: str,
    *,
    wait: bool,
    patience_s: float = 0.0,
    on_loss: Callable[[], object] = lambda: None,
) -> Iterator[Lease]:
    """Hold a lease during the block.

    Args:
        store: The store that the lease belongs to.
        name: Id of the run group or the comparison.
        work: What the lease is for, in messages.
        wait: If another process has it, wait, instead of raising InputError in one line that names the process.
        patience_s: Seconds of waiting after which that is printed.
        on_loss: Called, from another thread, if another process takes over the lease of an object store.

    Raise StorageError if the store cannot be written, or if the block failed because the lease was lost.
    """
    if not store.layout.is_local:
        claim(store.filesystem, store.layout.lease(NAME))
    lease = _lease(store, name, on_loss)
    try:
        if (holder := lease.take()) is not None:
            if not wait:
                raise _in_use(work, holder)
            _wait_for(lease, f"{work}: waiting for {holder}, which works on it", patience_s)
        yield lease
    except Exception:
        lease.check()
        raise
    finally:
        lease.release()


def _wait_for(lease: Lease, note: str, patience_s: float) -> None:
    print_at = time.monotonic() + patience_s
    while True:
        if time.monotonic() >= print_at:
            print_note(note)
            print_at = math.inf
        if lease.take() is None:
            return
        time.sleep(lease.poll_s)


def holder_of(store: Store, name: str) -> Holder | None:
    """Return which process has a lease; None if it is free."""
    return _lease(store, name).holder()


def held_leases(store: Store) -> list[str]:
    """Return the names of the leases that a process has, and of those whose file cannot be read."""
    folder, ending = store.layout.lease_files
    fs = store.filesystem
    paths: list[str] = []
    with storage_errors(folder), suppress(FileNotFoundError):
        paths = [path for path in fs.ls(folder, detail=False) if path.endswith(ending)]
    return [path.rpartition("/")[2].removesuffix(ending) for path in paths if _is_held(store, path)]


def _is_held(store: Store, path: str) -> bool:
    try:
        return _lease_at(store, path).holder() is not None
    except StorageError:
        return True  # whoever wrote it may be at work


def refuse_if_in_use(store: Store, name: str, work: str) -> None:
    """Raise InputError if a process has the lease: a quick look before anything is loaded or started."""
    if (holder := holder_of(store, name)) is not None:
        raise _in_use(work, holder)


def _in_use(work: str, holder: Holder) -> InputError:
    return InputError(f"{work}: in use by {holder}; wait until it has ended or {holder.how_to_stop}, then try again")


def _lease(store: Store, name: str, on_loss: Callable[[], object] = lambda: None) -> Lease:
    return _lease_at(store, store.layout.lease(name), on_loss)


def _lease_at(store: Store, path: str, on_loss: Callable[[], object] = lambda: None) -> Lease:
    if store.layout.is_local:
        return FileLease(Path(path))
    return ObjectLease(store.filesystem, path, on_loss)
