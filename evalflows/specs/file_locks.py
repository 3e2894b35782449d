"""Locks on files, which the operating system frees when their process ends, however it ends."""

import fcntl
from pathlib import Path
from typing import IO


def try_lock(file: IO[bytes] | int, *, shared: bool = False) -> bool:
    """Lock an open file, or a folder's descriptor, without waiting, alone or together with others.

    Return whether that was possible.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether a process holds the exclusive lock on a file."""
    try:
        with path.open("rb") as file:
            return not try_lock(file, shared=True)
    except OSError:
        return False


def hold(path: Path) -> IO[bytes] | None:
    """Lock a file exclusively, as long as the returned file is open. Return None if another process has locked it."""
    file = path.open("ab")
    if try_lock(file):
        return file
    file.close()
    return None
