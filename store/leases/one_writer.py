"""Servers that ignore the conditions of a request: one process at a time may write to their stores."""

import atexit
import os
import threading

from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import print_note
from evalflows.store.leases.object_lease import ObjectLease
from evalflows.store.object_store import ObjectFiles
from evalflows.store.parquet_files import storage_errors

NAME = "writer"
_IGNORES = "its server ignores If-None-Match and If-Match, so one process at a time may write to it"

_held: dict[tuple[int, str], ObjectLease] = {}
_claiming = threading.Lock()


def claim(fs: ObjectFiles, path: str) -> None:
    """Find out whether the server honours conditions; if not, say so, and make this process the only writer.

    A process keeps that until it ends. Raise InputError if another process has it, and StorageError if it was lost. Of
    two that claim it at the same moment, both may miss the other.
    """
    key = os.getpid(), path
    with _claiming, storage_errors(fs.root):
        if fs.honours_conditions():
            return
        if key not in _held:
            print_note(f"store {fs.root}: {_IGNORES}")
            lease = ObjectLease(fs, path, lambda: None)
            if holder := lease.take():
                raise InputError(
                    f"store {fs.root}: {_IGNORES}: {holder} does; {holder.how_to_stop} or wait for its end"
                )
            _held[key] = lease
            atexit.register(lease.release)
        _held[key].check()
