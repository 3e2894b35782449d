"""The checksum within each Parquet file of the store, and whether a file still agrees with it.

The checksum is computed while 64 zeros stand in its place, so it covers every other byte: pages, headers and footer.
Being part of the file, it is written and renamed together with it.
"""

# Parquet's page checksums, which do not cover the footer, are verified by what reads with pyarrow, long after the whole
# file was. DuckDB does not verify them.

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import IO, Any

from evalflows.specs import hints
from evalflows.specs.errors import StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import pa, pq
from evalflows.store.file_systems import is_mirrored, known

CHECKSUM_KEY = b"evalflows.sha256"
"""The key of the checksum in a file's metadata."""
BLANK = b"0" * 64
_TAIL = 1 << 16  # the metadata are in the footer, which may be longer
MAX_FOOTER = 64 << 20
"""Bytes of a footer, which damage may make any number."""
_BLOCK = 1 << 20
_LENGTHS = 2  # bytes of the Thrift encoding between a key and its value


@dataclass(frozen=True, slots=True)
class Content:
    """What all bytes of a file say: their SHA-256, how many they are, and what is wrong with them, if anything."""

    sha256: str
    size: int
    damage: str | None = None


def put_checksum(file: IO[bytes]) -> Content:
    """Replace the blank checksum of a complete Parquet file by its own. The file must be readable and writable."""
    offset = _place(file)
    if offset is None:
        raise ValueError("got a file without a place for its checksum")
    before, after = _around(file, offset)
    checksum = _checksum(before, after)
    file.seek(offset)
    file.write(checksum)
    return Content(_sha256(before, checksum + after), file.seek(0, os.SEEK_END))


def content_of(file: IO[bytes]) -> Content:
    """Read a Parquet file once: verify its checksum, and hash its bytes."""
    size, offset = file.seek(0, os.SEEK_END), _place(file)
    before, after = _around(file, size if offset is None else offset)
    if offset is None:
        return Content(_sha256(before, b""), size, footer_damage(file) or "it has no checksum")
    file.seek(offset)
    written = file.read(len(BLANK))
    damage = None if written == _checksum(before, after) else "its content does not match its checksum"
    return Content(_sha256(before, written + after), size, damage)


def written_checksum(file: IO[bytes]) -> str | None:
    """Return the checksum that a Parquet file has, without reading its content; None if it has none."""
    if (offset := _place(file)) is None:
        return None
    file.seek(offset)
    return file.read(len(BLANK)).decode(errors="replace")


def footer_damage(file: IO[bytes]) -> str | None:
    """Return what is wrong with a Parquet file by its footer alone, or None."""
    size = file.seek(0, os.SEEK_END)
    if size < 12:
        return f"got {size} bytes, too few for a Parquet file"
    try:
        file.seek(0)
        pq.read_metadata(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"its footer cannot be read: {' '.join(str(error).split())[:120]}"
    return None


def _place(file: IO[bytes]) -> int | None:
    """Return the position of the checksum, or None if there is none."""
    tail, size = footer_of(file), file.tell()
    found = tail.rfind(CHECKSUM_KEY)  # the last one, as texts of the rows may contain the key too
    offset = size - len(tail) + found + len(CHECKSUM_KEY) + _LENGTHS
    return None if found < 0 or offset + len(BLANK) > size else offset


def footer_of(file: IO[bytes]) -> bytes:
    """Return the end of a Parquet file that has its footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    footer = int.from_bytes(file.read(4), "little") + 8
    file.seek(max(0, size - max(_TAIL, footer if footer <= MAX_FOOTER else 0)))
    return file.read()


def _around(file: IO[bytes], offset: int) -> tuple[hashlib._Hash, bytes]:
    """Return a digest of the bytes before the checksum, and the bytes after it, which are the rest of the footer."""
    digest = hashlib.sha256()
    file.seek(0)
    left = offset
    while left and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    file.seek(offset + len(BLANK))
    return digest, file.read()


def _checksum(before: hashlib._Hash, after: bytes) -> bytes:
    """Return the SHA-256 of a file with zeros in the place of its checksum."""
    return _sha256(before, BLANK + after).encode()


def _sha256(before: hashlib._Hash, rest: bytes) -> str:
    digest = before.copy()
    digest.update(rest)
    return digest.hexdigest()


def file_damage(fs: Any, path: str, state: object = None, *, thoroughly: bool = True) -> str | None:
    """Return what is wrong with a file, or None; a sound one is read once per process and state (None: unknown).

    A file that has gone meanwhile is not damaged: whoever reads the store lists its files again.
    """
    if state is not None and known(fs, "hashes").get(path, (None, ""))[0] == state:
        return None
    damage, digest = _read(fs, path, thoroughly)
    if damage is not None and is_mirrored(fs):  # it may be the mirror's copy only
        fs.renew(path)
        damage, digest = _read(fs, path, thoroughly)
    if damage is None and digest is not None and state is not None:
        known(fs, "hashes")[path] = state, digest
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
    known_state, digest = known(fs, "hashes").get(path, (None, ""))
    return digest if known_state is not None and known_state == state else None


def verify(fs: Any, path: str, state: object) -> None:
    """Verify a file, once per process and state. Raise StorageError if it is damaged or unreadable."""
    if damage := file_damage(fs, path, state):
        raise damage_error(path, damage)


def forget_hashes(fs: Any, paths: Iterable[str]) -> None:
    """Forget that files were sound, so that they are read again."""
    hashes = known(fs, "hashes")
    for path in paths:
        hashes.pop(path, None)


def unreadable_error(error: OSError) -> StorageError:
    """Return the error for a file that the system could not open or read; `filename` names it."""
    return StorageError(f"{error.filename}: cannot be read: {error.strerror}; {hints.doctor().code} says what to do")


def damage_error(path: str, damage: str) -> StorageError:
    """Return the error for a damaged file."""
    return StorageError(f"{path}: damaged: {damage}; {hints.doctor().code} says what to do")
