"""Examples that are not in the store yet, kept in a temporary file, so that a dataset may be larger than memory."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pyarrow as pa

from evalflows.store.examples import READ_AHEAD, Column, Examples, content_line
from evalflows.store.records import ExampleRow
from evalflows.store.spilled_lines import SpilledLines

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

New = Mapping[int, str]
"""New ids of some examples, by place."""


def draft(examples: Iterable[ExampleRow], renamed: Callable[[Sequence[str]], New] | None = None) -> Examples:
    """Return examples in a temporary file. `renamed` tells from all ids which of them shall have others."""
    lines, ids, clusters, times = SpilledLines(), _Texts(), _Texts(), array("q")
    for example in examples:
        lines.append(content_line(example))
        ids.append(example.example_id)
        clusters.append(example.cluster)
        times.append((example.recorded_at - _EPOCH) // _MICROSECOND)
    names: Column[str] = ids.column()
    if renamed is not None and (new := renamed(names)):
        lines = SpilledLines.of(_with_id(line, new.get(place)) for place, line in enumerate(lines))
        names = _Texts(new.get(place, name) for place, name in enumerate(names)).column()

    def rows(places: Sequence[int]) -> Iterator[ExampleRow]:
        for place, line in lines.at(places):
            recorded_at = _EPOCH + times[place] * _MICROSECOND
            yield ExampleRow(snapshot_id="", position=place, recorded_at=recorded_at, **orjson.loads(line))

    return Examples(rows, names, clusters.column(), lines=lines)


def repeated_places(texts: Iterable[str]) -> list[int]:
    """Return the places of texts that occur more than once, and rarely of others, with 24 bytes of memory for each."""
    hashes = np.frombuffer(array("q", map(hash, texts)), np.int64)
    values, counts = np.unique(hashes, return_counts=True)
    return np.flatnonzero(np.isin(hashes, values[counts > 1])).tolist() if (counts > 1).any() else []


def _with_id(line: bytes, new: str | None) -> bytes:
    return line if new is None else content_line(ExampleRow(**orjson.loads(line) | _NEITHER | {"example_id": new}))


_NEITHER = {"snapshot_id": "", "position": 0}


class _Texts:
    """A column that grows, of which no more than READ_AHEAD texts are Python objects."""

    def __init__(self, texts: Iterable[str | None] = ()) -> None:
        self._blocks, self._last = list[pa.Array](), list[str | None]()
        for text in texts:
            self.append(text)

    def append(self, text: str | None) -> None:
        self._last.append(text)
        if len(self._last) == READ_AHEAD:
            self._end_block()

    def _end_block(self) -> None:
        self._blocks.append(pa.array(self._last, pa.string()))
        self._last = []

    def column(self) -> Column[str]:
        self._end_block()
        return Column(pa.chunked_array(self._blocks, pa.string()))
