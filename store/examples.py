"""Examples that are read from disk when they are needed, so that a dataset may be larger than memory."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.store.parquet_files import storage_errors
from evalflows.store.records import ExampleRow, to_json
from evalflows.store.schemas import to_rows
from evalflows.store.spilled_lines import SpilledLines

Item = TypeVar("Item")
Value = TypeVar("Value")

BLOCK_BYTES = 8 << 20
"""Bytes of texts that are handled at a time."""

CACHED_BYTES = 4 * BLOCK_BYTES
"""Bytes of a snapshot that stay in memory, at least one row group."""

READ_AHEAD = 10_000
"""Values of a column that are made at a time."""

CONTENT = ("example_id", "inputs", "reference_outputs", "metadata", "split", "cluster", "attachments")
"""The fields that identify an example: all but the snapshot and the position."""


def content_line(example: ExampleRow) -> bytes:
    """Return the fields that identify an example as one line of canonical JSON."""
    return to_json({name: getattr(example, name) for name in CONTENT}).encode()


def in_blocks(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most about BLOCK_BYTES, so that only one list need be in memory."""
    block: list[Item] = []
    total = 0
    for item in items:
        block.append(item)
        total += size(item)
        if total >= BLOCK_BYTES:
            yield block
            block, total = [], 0
    if block:
        yield block


def size_of(example: ExampleRow) -> int:
    """Return the characters of an example's texts."""
    texts = (example.inputs, example.reference_outputs, example.metadata, example.attachments)
    return sum(map(len, filter(None, texts)))


class Examples(Sequence[ExampleRow]):
    """Examples in a given order. Each access reads from disk; iteration reads ahead by at most BLOCK_BYTES."""

    def __init__(
        self,
        rows: Callable[[Sequence[int]], Iterator[ExampleRow]],
        ids: Sequence[str],
        clusters: Sequence[str | None],
        places: Sequence[int] | None = None,
        lines: SpilledLines | None = None,
        column: Callable[[str], Iterator[Any]] | None = None,
    ) -> None:
        self._rows, self._ids, self._clusters, self._lines, self._column = rows, ids, clusters, lines, column
        self._places: Sequence[int] = range(len(ids)) if places is None else places

    @cached_property
    def ids(self) -> Sequence[str]:
        """The examples' ids, in order, without reading their texts."""
        return self._ids if self._is_whole else [self._ids[place] for place in self._places]

    @cached_property
    def clusters(self) -> Sequence[str | None]:
        """The examples' clusters, in order, without reading their texts."""
        return self._clusters if self._is_whole else [self._clusters[place] for place in self._places]

    @property
    def _is_whole(self) -> bool:
        return isinstance(self._places, range) and self._places == range(len(self._ids))

    def select(self, numbers: Iterable[int]) -> "Examples":
        """Return the examples with these numbers, in this order, without reading them."""
        places = [self._places[number] for number in numbers]
        return Examples(self._rows, self._ids, self._clusters, places, self._lines, self._column)

    @property
    def is_draft(self) -> bool:
        """Whether they are not in the store yet."""
        return self._lines is not None

    def content_lines(self) -> SpilledLines:
        """Return the content of each example as a line; that of a draft as it was written, without parsing it."""
        if self._lines is None:
            return SpilledLines.of(map(content_line, self))
        return self._lines if self._is_whole else SpilledLines.of(map(self._lines.__getitem__, self._places))

    def texts(self, name: str) -> Iterator[Any]:
        """Yield one field of each example, from a file without reading the others."""
        if self._column is not None and self._is_whole:
            return self._column(name)
        return (getattr(example, name) for example in self)

    def rows(self, numbers: Iterable[int]) -> Iterator[ExampleRow]:
        """Yield the examples with these numbers, in this order."""
        return self._rows([self._places[number] for number in numbers])

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[ExampleRow]:
        return self._rows(self._places)

    @overload
    def __getitem__(self, number: int) -> ExampleRow: ...
    @overload
    def __getitem__(self, number: slice) -> list[ExampleRow]: ...
    def __getitem__(self, number: int | slice) -> ExampleRow | list[ExampleRow]:
        if isinstance(number, slice):
            return list(self._rows(self._places[number]))
        return next(self._rows([self._places[number]]))


def stored(fs: Any, path: str) -> Examples:
    """Return the examples of a snapshot's file, in their original order."""
    file = _File(fs, path)
    ids, clusters = Column[str](file.column("example_id")), Column[str | None](file.column("cluster"))
    positions = np.from_dlpack(file.column("position").combine_chunks())
    if (positions[1:] > positions[:-1]).all():
        return Examples(file.rows, ids, clusters, column=file.texts)
    order = np.argsort(positions, kind="stable").tolist()  # another program wrote them
    return Examples(file.rows, ids, clusters, order)


class Column(Sequence[Value]):
    """A column of a file as a sequence: as a list, a million ids would take a hundred megabytes."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values.combine_chunks()

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Value]:
        for start in range(0, len(self), READ_AHEAD):
            yield from self._values.slice(start, READ_AHEAD).to_pylist()

    @overload
    def __getitem__(self, number: int) -> Value: ...
    @overload
    def __getitem__(self, number: slice) -> list[Value]: ...
    def __getitem__(self, number: int | slice) -> Value | list[Value]:
        found = self._values[number]
        return found.to_pylist() if isinstance(number, slice) else found.as_py()  # type: ignore[no-any-return]


def _indices(numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    """Return whole numbers as Arrow. Its own conversion would import pandas."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _taken(rows: pa.Table, numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Table:
    """Return the rows with these numbers, without a copy if they follow each other."""
    if (np.diff(numbers) == 1).all():
        return rows.slice(numbers[0], len(numbers))
    return rows.take(_indices(numbers))


class _File:
    """A file of examples. The row groups read last stay in memory, since stages and targets read the same chunk."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self._cached: OrderedDict[int, pa.Table] = OrderedDict()
        self._lock = threading.Lock()
        with storage_errors(path), fs.open(path, "rb") as file:
            metadata = pq.read_metadata(file)
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *counts])

    def column(self, name: str) -> pa.ChunkedArray:
        with storage_errors(self._path), self._fs.open(self._path, "rb") as file:
            return pq.ParquetFile(file).read(columns=[name]).column(0)

    def texts(self, name: str) -> Iterator[Any]:
        with storage_errors(self._path), self._fs.open(self._path, "rb") as file:
            parquet = pq.ParquetFile(file)
            for group in range(parquet.num_row_groups):  # which are small where texts are long
                yield from Column[Any](parquet.read_row_group(group, columns=[name]).column(0))

    def rows(self, places: Sequence[int]) -> Iterator[ExampleRow]:
        numbers = np.fromiter(places, np.int64, len(places))
        groups = np.searchsorted(self._starts, numbers, "right") - 1
        changes = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(numbers)]
        for start, stop in pairwise(changes):  # one or more places in one row group
            if start < stop:
                group = int(groups[start])
                within = np.ascontiguousarray(numbers[start:stop] - self._starts[group])
                yield from to_rows("examples", _taken(self._group(group), within))

    def _group(self, group: int) -> pa.Table:
        with self._lock:
            if group not in self._cached:
                with storage_errors(self._path), self._fs.open(self._path, "rb") as file:
                    self._cached[group] = pq.ParquetFile(file).read_row_group(group)
                while len(self._cached) > 1 and sum(t.nbytes for t in self._cached.values()) > CACHED_BYTES:
                    self._cached.popitem(last=False)
            self._cached.move_to_end(group)
            return self._cached[group]
