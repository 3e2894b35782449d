"""Locks on files, which the operating system frees when their process ends, however it ends."""

import fcntl
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
