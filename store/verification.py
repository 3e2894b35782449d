"""Verifying files of the store before their rows are used: a damaged file is an error, not another value."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import StorageError
from evalflows.store.checksums import content_of, footer_damage
from evalflows.store.object_store import ObjectFiles
from evalflows.store.parquet_files import storage_errors

_sound: dict[str, tuple[object, str]] = {}
"""The files that this process has verified, with the state in which they were, and the SHA-256 of their bytes."""


def file_damage(fs: Any, path: str, state: object = None, *, thoroughly: bool = True) -> str | None:
    """Return what is wrong with a file, or None; a sound one is read once per process and state (None: unknown).

    A file that has gone meanwhile is not damaged: whoever reads the store lists its files again.
    """
    if state is not None and _sound.get(path, (None, ""))[0] == state:
        return None
    damage, digest = _read(fs, path, thoroughly)
    if damage is not None and isinstance(fs, ObjectFiles):  # it may be the mirror's copy only
        fs.renew(path)
        damage, digest = _read(fs, path, thoroughly)
    if damage is None and digest is not None and state is not None:
        _sound[path] = state, digest
    return damage


def _read(fs: Any, path: str, thoroughly: bool) -> tuple[str | None, str | None]:
    """Return what is wrong with a file, and the SHA-256 of its bytes if it was read whole."""
    try:
        with fs.open(path, "rb") as file:
            if not thoroughly:
                return footer_damage(file), None
            content = content_of(file)
            return content.damage, content.sha256
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return error.strerror or str(error), None


def sha256_of(fs: Any, path: str, state: object) -> str | None:
    """Return the SHA-256 of a file's bytes, verified as by `verify`; None for a file that has gone meanwhile."""
    verify(fs, path, state)
    known, digest = _sound.get(path, (None, ""))
    return digest if known is not None and known == state else None


def verify(fs: Any, path: str, state: object) -> None:
    """Verify a file, once per process and state. Raise StorageError if it is damaged or unreadable."""
    if damage := file_damage(fs, path, state):
        raise damaged(path, damage)


def damaged(path: str, damage: str) -> StorageError:
    """Return the error for a damaged file."""
    return StorageError(f"{path}: damaged: {damage}; `evalflows doctor` says what to do")


def read_verified(fs: Any, path: str, state: object = None) -> pa.Table:
    """Return the rows of a file, verified as by `verify`. Raise StorageError if it is damaged."""
    verify(fs, path, state)
    with storage_errors(path), fs.open(path, "rb") as file:
        try:
            return pq.ParquetFile(file).read()  # `read_table` imports pandas
        except (pa.ArrowException, ValueError) as error:  # a file without a checksum
            raise damaged(path, " ".join(str(error).split())[:120]) from error


def texts_in(parameters: Iterable[object]) -> set[str]:
    """Return the texts among a query's parameters, some of which may be owners."""
    values = [value if isinstance(value, list | tuple) else [value] for value in parameters]
    return {text for texts in values for text in texts if isinstance(text, str)}
