"""Files that are locked while their process lives, so that others take only those of dead processes."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from evalflows.specs.file_locks import try_lock


def create_locked(path: Path) -> IO[bytes]:
    """Create and lock a file, to be appended to without a buffer. Raise OSError if that fails."""
    while True:
        with suppress(FileNotFoundError, FileExistsError):  # another process removed the folder: create it again
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():  # else `open_left_behind` took the empty file before it was locked
                return file
            file.close()


def open_left_behind(path: Path, deadline: float = 0.0) -> IO[bytes] | None:
    """Open and lock a file that its process has left behind; None if it is in use until the deadline, or gone."""
    with suppress(FileNotFoundError):
        file = path.open("rb")
        while not try_lock(file):
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(0.05)
        if path.exists():  # else its process has just written its rows
            return file
        file.close()
    return None
