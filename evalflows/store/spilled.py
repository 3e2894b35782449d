"""Lines and rows kept on disk instead of in memory."""

import pickle
import tempfile
import threading
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, Self, TypeVar

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")

IN_MEMORY = 16 << 20
"""Bytes up to which the lines stay in memory."""

READ_AHEAD = 1 << 20
"""Bytes that are read at a time where lines are read one after the other."""


class SpilledLines:
    """Lines in a temporary file without a name, so that nothing is left behind however the process ends.

    Any thread may append and read. The file is in the folder for temporary files, which TMPDIR names.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (lives as long as the object)
        self._starts = array("Q", [0])
        self._is_at_end = True
        self._lock = threading.Lock()

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> Self:
        made = cls()
        for line in lines:
            made.append(line)
        return made

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, line: bytes) -> int:
        """Add a line. Return its number, from 0. Raise OSError if the disk is full."""
        with self._lock:
            if not self._is_at_end:
                self._file.seek(self._starts[-1])
                self._is_at_end = True
            self._file.write(line)
            self._starts.append(self._starts[-1] + len(line))
            return len(self) - 1

    def __getitem__(self, number: int) -> bytes:
        return self._read(self._starts[number], self._starts[number + 1])

    def __iter__(self) -> Iterator[bytes]:
        return (line for _, line in self.at(range(len(self))))

    def at(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield lines with their numbers; those that follow each other in less time than one by one."""
        index = 0
        while index < len(numbers):
            first, start = numbers[index], self._starts[numbers[index]]
            last = index  # of those read at once
            while last + 1 < len(numbers) and numbers[last + 1] == first + last + 1 - index:
                if self._starts[numbers[last + 1] + 1] - start > READ_AHEAD:
                    break
                last += 1
            block = self._read(start, self._starts[numbers[last] + 1])
            for number in numbers[index : last + 1]:
                yield number, block[self._starts[number] - start : self._starts[number + 1] - start]
            index = last + 1

    def _read(self, start: int, stop: int) -> bytes:
        with self._lock:
            self._is_at_end = False
            self._file.seek(start)
            return self._file.read(stop - start)


class SpilledRows(Generic[Key, Row]):
    """Rows by key, kept on disk instead of in memory; the last one of a key counts."""

    def __init__(self) -> None:
        self._lines, self._numbers = SpilledLines(), dict[Key, int]()

    def __contains__(self, key: Key) -> bool:
        return key in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __setitem__(self, key: Key, row: Row) -> None:
        self._numbers[key] = self._lines.append(pickle.dumps(row))

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget the rows of some keys. Their place on disk is free once there are no others."""
        for key in keys:
            self._numbers.pop(key, None)
        if not self._numbers:
            self._lines = SpilledLines()

    def get(self, key: Key) -> Row | None:
        number = self._numbers.get(key)
        return None if number is None else pickle.loads(self._lines[number])
