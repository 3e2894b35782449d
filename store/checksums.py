"""Checksums of the store's files: each has the SHA-256 of its content in its own metadata.

The checksum is computed while 64 zeros stand in its place, so it covers every other byte: pages, headers and footer.
Being part of the file, it is written and renamed together with it. Parquet's page checksums would not cover the footer,
and DuckDB does not verify them. Files from before checksums have none, and are only known to be readable.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

CHECKSUM_KEY = b"evalflows.sha256"
"""The key of the checksum in a file's metadata."""
BLANK = b"0" * 64
_ALTERED_KEY = re.compile(
    b"|".join(re.escape(CHECKSUM_KEY[:i]) + b"." + re.escape(CHECKSUM_KEY[i + 1 :]) for i in range(len(CHECKSUM_KEY))),
    re.DOTALL,
)
"""The key with one byte altered, so that a flipped bit cannot make a file one without a checksum."""
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
    place = _place(file)
    if place is None:
        raise ValueError("got a file without a place for its checksum")
    before, after = _around(file, place)
    checksum = _checksum(before, after)
    file.seek(place)
    file.write(checksum)
    return Content(_sha256(before, checksum + after), file.seek(0, os.SEEK_END))


def has_checksum(file: IO[bytes]) -> bool:
    return _place(file) is not None


def content_of(file: IO[bytes]) -> Content:
    """Read a Parquet file once: verify its checksum, and hash its bytes."""
    size, place = file.seek(0, os.SEEK_END), _place(file)
    before, after = _around(file, size if place is None else place)
    if place is None:
        return Content(_sha256(before, b""), size, footer_damage(file))
    file.seek(place)
    written = file.read(len(BLANK))
    is_sound = written == _checksum(before, after)
    damage = footer_damage(file) if is_sound else "its content does not match its checksum"
    return Content(_sha256(before, written + after), size, damage)


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
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    footer = int.from_bytes(file.read(4), "little") + 8
    start = max(0, size - max(_TAIL, footer if footer <= MAX_FOOTER else 0))
    file.seek(start)
    tail = file.read()
    found = tail.rfind(CHECKSUM_KEY)  # the last one, as texts of the rows may contain the key too
    if found < 0:
        found = max((match.start() for match in _ALTERED_KEY.finditer(tail)), default=-1)
    place = start + found + len(CHECKSUM_KEY) + _LENGTHS
    return None if found < 0 or place + len(BLANK) > size else place


def _around(file: IO[bytes], place: int) -> tuple["hashlib._Hash", bytes]:
    """Return a digest of the bytes before the checksum, and the bytes after it, which are the rest of the footer."""
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while left and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    file.seek(place + len(BLANK))
    return digest, file.read()


def _checksum(before: "hashlib._Hash", after: bytes) -> bytes:
    """Return the SHA-256 of a file with zeros in the place of its checksum."""
    return _sha256(before, BLANK + after).encode()


def _sha256(before: "hashlib._Hash", rest: bytes) -> str:
    digest = before.copy()
    digest.update(rest)
    return digest.hexdigest()
