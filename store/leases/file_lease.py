"""The lease of a local store: a locked file, which names its holder.

Only the lock counts. The operating system frees it when the process ends, however it ends.
"""

import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from evalflows.specs.file_locks import try_lock
from evalflows.store.leases.holder import UNKNOWN, Holder, from_bytes, this_process, to_bytes
from evalflows.store.parquet_files import storage_errors

TRIES = 5
"""Attempts to lock a file before its holder is named: another process may lock it only to see whether it is free."""

_held: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()


class FileLease:
    """A lease that is a lock on a file."""

    poll_s = 0.2

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def take(self) -> Holder | None:
        """Take the lease. Return None, or who has it. Raise StorageError if the file cannot be written."""
        holder: Holder | None = UNKNOWN
        for attempt in range(TRIES):
            time.sleep(0.02 if attempt else 0.0)
            with storage_errors(self._path):
                holder = self._try()
            if holder is None:
                break
        return holder

    def holder(self) -> Holder | None:
        """Return who has the lease, without taking it; None if it is free."""
        with storage_errors(self._path), suppress(FileNotFoundError), self._path.open("rb") as file:
            if not try_lock(file, shared=True):
                return from_bytes(file.read())[0]
        return None

    def check(self) -> None:
        """Do nothing: nobody can take over a lock while this process has it."""

    def release(self) -> None:
        """Remove the file and free the lock."""
        if self._file is not None:
            with suppress(OSError):  # the store was removed
                if self._is_current(self._file):
                    self._path.unlink()
            _held.discard(self._file)
            self._file.close()
            self._file = None

    def _try(self) -> Holder | None:
        self._path.parent.mkdir(exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        if not try_lock(file):
            file.seek(0)
            holder, _ = from_bytes(file.read())
            file.close()
            return holder
        if not self._is_current(file):  # its holder has just removed it
            file.close()
            return UNKNOWN
        self._file = file
        _held.add(file)
        file.truncate(0)
        file.write(to_bytes(this_process()))
        return None

    def _is_current(self, file: IO[bytes]) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        return False


def _close_inherited() -> None:
    """Close the files of leases in a forked process, which would else keep a lease after this process was killed."""
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_close_inherited)
