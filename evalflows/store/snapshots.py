"""Freezing datasets: rows become examples, and examples a snapshot with an id derived from their content.

They are read from disk when needed, so that a dataset may be larger than memory.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import hashlib
import re
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeVar, overload

import orjson

from evalflows.specs.attachments import Finder, Read, may_hold_content
from evalflows.specs.errors import InputError, NotFoundError, StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.home import keep_note, note
from evalflows.specs.values import identifier, is_blank, stored_row
from evalflows.store import attachments
from evalflows.store.arrow import np, pa
from evalflows.store.checksums import sha256_of, verify
from evalflows.store.file_states import state_of
from evalflows.store.files import open_parquet
from evalflows.store.manifests import ADVICE
from evalflows.store.records import (
    DatasetVersionRow,
    ExampleRow,
    SnapshotRow,
    after,
    derived_id,
    from_json,
    new_id,
    to_json,
)
from evalflows.store.schemas import from_columns, is_erased, to_arrow, to_column, to_rows
from evalflows.store.spilled import SpilledLines
from evalflows.store.store import Store

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
_content: Callable[[ExampleRow], tuple[str | None, ...]] = attrgetter(*CONTENT)

_DRAFT = to_json(to_json({"draft": True})[1:-1])[1:-1].encode()
"""What the line of a draft has, whose metadata are JSON in a text."""

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

New = Mapping[int, str]
"""New ids of some examples, by place."""

INPUTS = ("inputs", "input")
REFERENCES = ("reference_outputs", "outputs", "expected_output")
KNOWN = (*INPUTS, *REFERENCES, "id", "metadata", "split", "cluster", "attachments")

HEAD = 24
"""Bytes of a line to sort by, after what all lines start with. Its keys are sorted too, so the id is near its start."""

KNOWN_CONTENT = "known_snapshots"
"""The folder of the user with the hash of each snapshot's file."""

_ID = re.compile("snap-[0-9a-f]{24}")

_SHARED = """select 1 from source.examples one join source.examples other using (example_id)
             where one.snapshot_id = ? and other.snapshot_id = ? and one.inputs = other.inputs limit 1"""


def content_line(example: ExampleRow) -> bytes:
    """Return the fields that identify an example as one line of canonical JSON."""
    return to_json(dict(zip(CONTENT, _content(example), strict=True))).encode()


def content_digest(example: ExampleRow) -> bytes:
    """Return a hash of an example's content, of 16 bytes."""
    return hashlib.blake2b(content_line(example), digest_size=16).digest()


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
        return self._ids if self._is_whole else [self._ids[index] for index in self._places]

    @cached_property
    def clusters(self) -> Sequence[str | None]:
        """The examples' clusters, in order, without reading their texts."""
        return self._clusters if self._is_whole else [self._clusters[index] for index in self._places]

    @property
    def _is_whole(self) -> bool:
        return isinstance(self._places, range) and self._places == range(len(self._ids))

    def select(self, numbers: Iterable[int]) -> Examples:
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

    def drafts(self) -> list[int]:
        """Return the numbers of those that a model wrote and nobody has accepted: `draft: true` in their metadata."""
        if self._lines is None or not self._is_whole:
            return [number for number, text in enumerate(self.texts("metadata")) if is_draft(text)]
        return [number for number, line in enumerate(self._lines) if _DRAFT in line and is_draft(self[number].metadata)]

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


def is_draft(metadata: str | None) -> bool:
    """Return whether metadata (JSON) say that nobody has accepted the example yet."""
    return metadata is not None and '"draft":true' in metadata and from_json(metadata).get("draft") is True


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


def _indices(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return whole numbers as Arrow. Its own conversion would import pandas."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _taken(rows: pa.Table, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
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
        with open_parquet(fs, path) as parquet:
            metadata = parquet.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *counts])

    def column(self, name: str) -> pa.ChunkedArray:
        with open_parquet(self._fs, self._path) as parquet:
            return parquet.read(columns=[name]).column(0)

    def texts(self, name: str) -> Iterator[Any]:
        with open_parquet(self._fs, self._path) as parquet:
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
                with open_parquet(self._fs, self._path) as parquet:
                    self._cached[group] = parquet.read_row_group(group)
                while len(self._cached) > 1 and sum(t.nbytes for t in self._cached.values()) > CACHED_BYTES:
                    self._cached.popitem(last=False)
            self._cached.move_to_end(group)
            return self._cached[group]


def draft(examples: Iterable[ExampleRow], renamed: Callable[[Sequence[str]], New] | None = None) -> Examples:
    """Return examples in a temporary file. `renamed` tells from all ids which of them shall have others."""
    lines, ids, clusters, splits, times = SpilledLines(), _Texts(), _Texts(), _Texts(), array("q")
    for example in examples:
        lines.append(content_line(example))
        ids.append(example.example_id)
        clusters.append(example.cluster)
        splits.append(example.split)
        times.append((example.recorded_at - _EPOCH) // _MICROSECOND)
    names: Column[str] = ids.column()
    if renamed is not None and (new := renamed(names)):
        lines = SpilledLines.of(_with_id(line, new.get(index)) for index, line in enumerate(lines))
        names = _Texts(new.get(index, name) for index, name in enumerate(names)).column()

    def rows(places: Sequence[int]) -> Iterator[ExampleRow]:
        for position, line in lines.at(places):
            recorded_at = _EPOCH + times[position] * _MICROSECOND
            yield ExampleRow(snapshot_id="", position=position, recorded_at=recorded_at, **orjson.loads(line))

    split_column: Column[str] = splits.column()

    def column(name: str) -> Iterator[Any]:
        if name == "split":
            return iter(split_column)
        return (getattr(example, name) for example in rows(range(len(names))))

    return Examples(rows, names, clusters.column(), lines=lines, column=column)


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
        self._blocks.append(to_column(self._last, pa.string()))
        self._last = []

    def column(self) -> Column[str]:
        self._end_block()
        return Column(pa.chunked_array(self._blocks, pa.string()))


def examples_in_memory(rows: Sequence[ExampleRow]) -> Examples:
    """Return examples that are in memory, in their order."""
    ids, clusters = [row.example_id for row in rows], [row.cluster for row in rows]
    return Examples(lambda places: (rows[place] for place in places), ids, clusters)


def to_examples(rows: Iterable[tuple[int, Mapping[str, Any]]], where: str, read: Read | None = None) -> Examples:
    """Convert numbered rows to examples, not yet of any snapshot. Pictures, sounds and PDFs become references.

    An example's id is its own `id`, else a hash of its content. A value that is not a mapping is wrapped: inputs as
    `{"input": …}`, reference outputs as `{"output": …}`. Raise InputError, with the row's number, for a row without
    inputs, an unknown field, or a duplicate id; and with `read`, which reads files that rows name, for one that is not
    what its name says.
    """
    numbers, unnamed, finder = array("q"), bytearray(), Finder(attachments.keep, read)

    def made() -> Iterator[ExampleRow]:
        for number, row in rows:
            yield _to_example(row, len(numbers), f"{where}:{number}", finder)
            numbers.append(number)
            unnamed.append(is_blank(row.get("id")))

    examples = draft(made(), lambda ids: _numbered(ids, numbers, unnamed, where))
    if not examples:
        raise InputError(f"{where}: got no rows, wanted at least one example")
    return examples


def _numbered(ids: Sequence[str], numbers: Sequence[int], unnamed: Sequence[int], where: str) -> dict[int, str]:
    """Return new ids, by place, for repeated rows without an id: each is another example.

    Raise InputError for a duplicate id.
    """
    new, first, repeats = dict[int, str](), dict[str, int](), Counter[str]()
    for index in repeated_places(ids):
        identity = ids[index]
        if unnamed[index]:
            repeats[identity] += 1
            if repeats[identity] > 1:
                identity = new[index] = derived_id(identity, repeats[identity])[:20]
        if identity in first:
            raise InputError(f"{where}:{numbers[index]}: duplicate id {identity!r}, first in row {first[identity]}")
        first[identity] = numbers[index]
    if new and (taken := {*new.values()}.intersection(ids)):
        raise InputError(f"{where}: got the id {min(taken)!r}, which a repeated row has, wanted another")
    return new


def snapshot_id(examples: Sequence[ExampleRow]) -> str:
    """Return a hash of the examples' content, independent of their order."""
    known = examples.content_lines() if isinstance(examples, Examples) else None
    return id_of_lines(known or SpilledLines.of(map(content_line, examples)))


def id_of_lines(lines: SpilledLines | Sequence[bytes]) -> str:
    """Return the hash of a snapshot whose examples have these `content_line`s."""
    digest = hashlib.sha256()
    for number in _sorted(lines):
        digest.update(lines[number])
        digest.update(b"\n")
    return "snap-" + digest.hexdigest()[:24]


def _sorted(lines: SpilledLines | Sequence[bytes]) -> Iterator[int]:
    """Yield the numbers of the lines in their sorted order, with no more of each in memory than HEAD bytes."""
    start = len(_common_start(lines))
    heads = np.fromiter((line[start : start + HEAD] for line in lines), f"S{HEAD}", len(lines))
    for _, numbers in groupby(np.argsort(heads, kind="stable"), key=heads.__getitem__):
        same = [int(number) for number in numbers]
        yield from same if len(same) == 1 else sorted(same, key=lines.__getitem__)


def _common_start(lines: SpilledLines | Sequence[bytes]) -> bytes:
    """Return what all lines start with: the names of the first keys, and often their values."""
    start = lines[0] if len(lines) else b""
    for line in lines:
        if not line.startswith(start):
            start = start[: next(n for n in range(len(start)) if start[n : n + 1] != line[n : n + 1])]
    return start


def freeze(
    store: Store,
    examples: Sequence[ExampleRow],
    *,
    name: str | None,
    source: str,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Store examples as a snapshot, and make it the current version of `name`. Return the snapshot's id."""
    identity = snapshot_id(examples)
    if not store.is_sealed("snapshots", identity):
        splits: Counter[str] = Counter()

        def row() -> Iterator[pa.Table]:  # after the examples, which are counted while they are written
            of_splits = to_json(dict(splits))
            yield to_arrow("snapshots", [SnapshotRow(snapshot_id=identity, n_examples=len(examples), splits=of_splits)])

        tables = [("examples", _tables(examples, identity, splits)), ("snapshots", row())]
        lines = examples.content_lines() if isinstance(examples, Examples) else map(content_line, examples)
        with attachments.storing(store, lines):
            store.publish_all(identity, tables)
        _note_content(store, identity)
    else:
        check_content(store, identity, examples)
    if name is not None:
        make_current(store, identity, name=name, source=source, description=description, metadata=metadata)
    return identity


def check_content(store: Store, identity: str, frozen: Iterable[ExampleRow] = ()) -> None:
    """Raise StorageError if the examples of a snapshot in the store are others than those that its id is a hash of.

    With erased examples it cannot be told from the id; the others must then be among `frozen`, the snapshot's examples,
    if they are given. A file whose examples were right is noted in the user's folder, and not read again.
    """
    if is_content_known(store, identity):
        return
    stored = load_snapshot(store, identity)
    if snapshot_id(stored) != identity:
        known = {content_digest(example) for example in frozen}
        left = (example for example in stored if not is_erased(example.inputs))
        has_erased = any(map(is_erased, stored.texts("inputs")))
        if not has_erased or (known and any(content_digest(example) not in known for example in left)):
            path = store.layout.sealed("examples", identity)
            raise StorageError(f"{path}: the hash of its examples is not {identity}; {ADVICE}")
        if not known:
            return
    _note_content(store, identity)


def is_content_known(store: Store, identity: str) -> bool:
    """Return whether this user has seen that a snapshot's file in the store has the examples that its id is a hash of.

    Raise StorageError if the file is damaged.
    """
    seen = note(KNOWN_CONTENT, identity) if _ID.fullmatch(identity) else None
    return bool(seen) and store.is_sealed("snapshots", identity) and _file_hash(store, identity) == seen


def _note_content(store: Store, identity: str) -> None:
    if digest := _file_hash(store, identity):
        keep_note(KNOWN_CONTENT, identity, digest)


def _file_hash(store: Store, identity: str) -> str | None:
    path = store.layout.sealed("examples", identity)
    return sha256_of(store.filesystem, path, state_of(store.layout, store.filesystem, path))


def make_current(
    store: Store,
    identity: str,
    *,
    name: str,
    source: str,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Make a snapshot the current version of `name`, if it is not."""
    before, since, of_before = _current_version(store, name)
    if before == identity:
        return
    if before is not None and of_before != source and not store.query(_SHARED, [before, identity]):
        print_note(
            f"dataset {name!r} is now {source}, which shares no example with its version before, {of_before}: if these "
            "are two datasets, give one of them another `name`"
        )
    _refer(store, name, identity, before, since, source=source, description=description, metadata=metadata)


def hide_dataset(store: Store, name: str, source: str) -> None:
    """Free a dataset's name: it is listed no longer, and its versions and what ran on them stay.

    Raise NotFoundError if there is no dataset of this name.
    """
    before, since, _ = _current_version(store, name)
    if before is None:
        raise NotFoundError(f"dataset {name!r}: not in the store, wanted the name of a dataset")
    _refer(store, name, "", before, since, source=source)


def _refer(
    store: Store,
    name: str,
    identity: str,
    before: str | None,
    since: datetime | None,
    *,
    source: str,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    recorded_at = after(since)
    version = new_id("ver", recorded_at)
    row = DatasetVersionRow(
        dataset_version_id=version,
        name=name,
        snapshot_id=identity,
        parent_snapshot_id=before,
        source=source,
        description=description,
        metadata=None if metadata is None else to_json(dict(metadata)),
        recorded_at=recorded_at,
    )
    store.publish("dataset_versions", version, [row])


def _tables(examples: Iterable[ExampleRow], identity: str, splits: Counter[str]) -> Iterator[pa.Table]:
    """Yield the rows of a snapshot in blocks, and count how many are in each split."""
    for block in in_blocks(examples, size_of):
        splits.update(example.split for example in block if example.split is not None)
        columns = {name: [getattr(example, name) for example in block] for name in ExampleRow.__slots__}
        yield from_columns("examples", {**columns, "snapshot_id": (identity,) * len(block)})


def current_snapshot(store: Store, name: str) -> str | None:
    """Return the id of a dataset's current snapshot; None if there is none. Damaged versions are left out."""
    return _current_version(store, name)[0]


def _current_version(store: Store, name: str) -> tuple[str | None, datetime | None, str | None]:
    """Return the id of a dataset's current snapshot, since when it is current, and its source; None without one.

    Of a deleted one only the time.
    """
    store.verify_table("dataset_versions")
    query = """select nullif(snapshot_id, ''), recorded_at, source from source.dataset_versions
               where name = ? order by recorded_at desc limit 1"""
    rows = store.query(query, [name])
    return rows[0] if rows else (None, None, None)


def load_snapshot(store: Store, identity: str) -> Examples:
    """Return the examples of a snapshot, in their original order. Raise InputError for an unknown id."""
    if not store.is_sealed("snapshots", identity):
        raise InputError(f"snapshot {identity!r}: not in the store {store.layout.root}")
    path = store.layout.sealed("examples", identity)
    verify(store.filesystem, path, state_of(store.layout, store.filesystem, path))
    return stored(store.filesystem, path)


def example_of(row: Mapping[str, Any], position: int, where: str) -> ExampleRow:
    """Return a row as an example, as `to_examples` does, without reading files that it names."""
    return _to_example(row, position, where, Finder(attachments.keep, None))


def _to_example(given: Mapping[str, Any], position: int, where: str, finder: Finder) -> ExampleRow:
    row = stored_row(given, where)
    inputs = _one_of(row, INPUTS, where)
    if is_blank(inputs) or inputs == {}:
        got = ", ".join(map(str, row)) or "an empty row"
        raise InputError(f"{where}: no inputs: got {got}, wanted 'inputs' (or `columns`, for rows of any schema)")
    for key in row:
        if key not in KNOWN:
            known = ", ".join(KNOWN)
            raise InputError(f"{where}: got the field {key!r}, wanted only {known} (or `columns`)")
    try:
        content: dict[str, Any] = {
            "inputs": to_json(_mapping(inputs, "input")),
            "reference_outputs": _json(_one_of(row, REFERENCES, where), "output"),
            "metadata": _json(row.get("metadata"), "value"),
            "split": _text(row, "split", where),
            "cluster": _text(row, "cluster", where),
            "attachments": _json(finder.in_attachments(row.get("attachments"), f"{where}: attachments"), "value"),
        }
        for name in ("inputs", "reference_outputs"):
            if content[name] is not None and may_hold_content(content[name]):
                content[name] = to_json(finder.in_messages(from_json(content[name]), f"{where}: {name}"))
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"{where}: got {half!r}, half of a character, wanted whole characters") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if is_erased(content["inputs"]):
        raise InputError(f"{where}: got an erased example, wanted its texts")
    identity = _text(row, "id", where) or derived_id(to_json({"example_id": "", **content}))[:20]
    return ExampleRow(snapshot_id="", example_id=identity, position=position, **content)


def _one_of(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> Any:
    present = [name for name in names if row.get(name) is not None]
    if len(present) > 1:
        raise InputError(f"{where}: got both {present[0]!r} and {present[1]!r}, wanted one of them")
    return row[present[0]] if present else None


def _mapping(value: Any, only: str) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {only: value}


def _json(value: Any, only: str) -> str | None:
    return None if value is None else to_json(_mapping(value, only))


def _text(row: Mapping[str, Any], name: str, where: str) -> str | None:
    text = identifier(row.get(name), f"{where}: {name}")
    return None if text is None else _valid_text(text, name, where)


def _valid_text(text: str, name: str, where: str) -> str:
    """Return the text. Raise InputError if it is not valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {name}: not text: {error}") from error
    return text
