"""Verifying files of the store before their rows are used: a damaged file is an error, not another value."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import StorageError
from evalflows.store.checksums import damage_of
from evalflows.store.parquet_files import storage_errors

_sound: dict[str, object] = {}
"""The files that this process has verified, with the state in which they were."""


def verify(fs: Any, path: str, state: object) -> None:
    """Verify a file, once per process and state (None: unknown). Raise StorageError if it is damaged or unreadable.

    A file that has gone meanwhile is not an error: whoever reads the store lists its files again.
    """
    if state is not None and _sound.get(path) == state:
        return
    try:
        with storage_errors(path), fs.open(path, "rb") as file:
            damage = damage_of(file)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    if damage is not None:
        raise damaged(path, damage)
    if state is not None:
        _sound[path] = state


def damaged(path: str, damage: str) -> StorageError:
    """Return the error for a damaged file."""
    return StorageError(f"{path}: damaged: {damage}; `evalflows doctor` says what to do")


def read_verified(fs: Any, path: str, state: object) -> pa.Table:
    """Return the rows of a file, verified as by `verify`. Raise StorageError if it is damaged."""
    verify(fs, path, state)
    with storage_errors(path), fs.open(path, "rb") as file:
        try:
            return pq.read_table(file)
        except (pa.ArrowException, ValueError) as error:  # a file without a checksum
            raise damaged(path, " ".join(str(error).split())[:120]) from error
