"""The journal: accepted requests on local disk, as they came, until they are rows of the store.

A receiver appends to a file of its own, which it keeps locked. The file is taken from time to time, a new one begins,
and the taken one is removed once its rows are written. Files of dead receivers are taken by any other.
"""

import os
import secrets
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from evalflows.specs.errors import StorageError
from evalflows.specs.safe_text import print_note
from evalflows.store.left_behind import create_locked, open_left_behind
from evalflows.store.parquet_files import storage_errors

Signal = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]

_HEAD = struct.Struct("<BII")  # what it is, the body's length, and the checksum of both and of the body
_CHECKED = struct.Struct("<BI")
_KINDS: tuple[tuple[Signal, Encoding], ...] = (
    ("traces", "protobuf"),
    ("traces", "json"),
    ("logs", "protobuf"),
    ("logs", "json"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The body of one request, decompressed."""

    signal: Signal
    encoding: Encoding
    body: bytes

    def to_bytes(self) -> bytes:
        kind = _KINDS.index((self.signal, self.encoding))
        return _HEAD.pack(kind, len(self.body), _checksum(kind, self.body)) + self.body


@dataclass(frozen=True, slots=True)
class Taken:
    """A file of the journal that nobody appends to any more. Whoever has it keeps it locked."""

    path: Path
    size: int
    _lock: IO[bytes]

    def entries(self) -> Iterator[Entry]:
        """Yield the entries. What cannot be read is set aside, except a torn end, which was answered to nobody."""
        with storage_errors(self.path), self.path.open("rb") as file:
            while head := file.read(_HEAD.size):
                start = file.tell() - len(head)
                entry = _entry(head, file)
                if entry is None:
                    self._set_aside(file, start)
                    return
                yield entry

    def set_aside(self, content: bytes) -> None:
        """Keep in `<name>.damaged` what cannot be read, and print that."""
        path = self.path.with_suffix(".damaged")
        with storage_errors(path), path.open("ab") as file:
            file.write(content)
            os.fsync(file.fileno())
        print_note(f"set aside {len(content)} bytes of the receiver's journal that cannot be read, in {path}")

    def remove(self) -> None:
        """Remove the file: all its rows are in the store."""
        with storage_errors(self.path):
            self.path.unlink(missing_ok=True)
        self._lock.close()

    def release(self) -> None:
        """Unlock the file, so that another receiver takes it."""
        self._lock.close()

    def _set_aside(self, file: IO[bytes], start: int) -> None:
        file.seek(start)
        head = file.read(_HEAD.size)
        is_torn = len(head) < _HEAD.size or _HEAD.unpack(head)[1] > self.size - start - _HEAD.size
        file.seek(start)
        rest = file.read()
        if not is_torn and rest.strip(b"\0"):
            self.set_aside(rest)


class Journal:
    """The journal of one receiver. One thread writes, another takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._path = folder
        self._full: deque[Taken] = deque()
        self._size = 0  # of the current file
        self._pending = 0  # bytes in files that were not removed yet

    @property
    def pending(self) -> int:
        """The bytes that are not in the store yet."""
        return self._pending

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries, all or none. They are on disk when this returns. Raise StorageError if that fails."""
        content = b"".join(entry.to_bytes() for entry in entries)
        with self._lock:
            try:
                self._append(content)
            except StorageError:
                self._begin_anew()  # after a failed sync, nothing says what is on disk behind the last entry
                raise

    def take(self) -> Taken | None:
        """Return the oldest file with entries, locked; None if there is none."""
        with self._lock:
            if not self._full:
                self._begin_anew()
            return self._full.popleft() if self._full else None

    def give_back(self, taken: Taken) -> None:
        """Return a file whose rows could not be written, to be taken again later."""
        with self._lock:
            self._full.appendleft(taken)

    def remove(self, taken: Taken) -> None:
        """Remove a file whose rows are in the store."""
        taken.remove()
        with self._lock:
            self._pending -= taken.size

    def recover(self) -> None:
        """Take the files of dead receivers, to be returned by `take`."""
        for path in sorted(self._folder.glob("*.journal")):
            if (file := open_left_behind(path)) is not None:
                taken = Taken(path, os.fstat(file.fileno()).st_size, file)
                with self._lock:
                    self._full.append(taken)
                    self._pending += taken.size

    def close(self) -> None:
        """Unlock the files, which the next receiver recovers. One without entries is removed."""
        with self._lock:
            self._begin_anew()
            for taken in self._full:
                taken.release()
            self._full.clear()
            with suppress(OSError):  # not empty
                self._folder.rmdir()

    def _append(self, content: bytes) -> None:
        if self._file is None:
            self._create()
        assert self._file is not None
        with storage_errors(self._path):
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._size)
                raise
        self._size += len(content)
        self._pending += len(content)

    def _create(self) -> None:
        self._path = self._folder / f"{secrets.token_hex(8)}.journal"
        with storage_errors(self._path):
            self._file = create_locked(self._path)
            self._size = 0
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _begin_anew(self) -> None:
        """End the current file; one without entries is removed."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if self._size:
            self._full.append(Taken(self._path, self._size, file))
        else:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            file.close()


def _entry(head: bytes, file: IO[bytes]) -> Entry | None:
    """Read the entry behind a head; None if it is torn or altered."""
    if len(head) < _HEAD.size:
        return None
    kind, length, check = _HEAD.unpack(head)
    body = file.read(length)
    if len(body) < length or kind >= len(_KINDS) or check != _checksum(kind, body):
        return None
    signal, encoding = _KINDS[kind]
    return Entry(signal, encoding, body)


def _checksum(kind: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, len(body))))
