"""Freezing datasets: rows become examples, and examples a snapshot with an id derived from their content."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from evalflows.specs.errors import InputError
from evalflows.store.drafts import draft, repeated_places
from evalflows.store.erased import is_erased
from evalflows.store.examples import Examples, content_line, in_blocks, size_of, stored
from evalflows.store.file_states import state_of
from evalflows.store.parquet import Store
from evalflows.store.records import DatasetVersionRow, ExampleRow, SnapshotRow, after, derived_id, new_id, to_json
from evalflows.store.schemas import from_columns, to_arrow
from evalflows.store.spilled_lines import SpilledLines
from evalflows.store.verification import verify

INPUTS = ("inputs", "input")
REFERENCES = ("reference_outputs", "outputs", "expected_output")
KNOWN = (*INPUTS, *REFERENCES, "id", "metadata", "split", "cluster", "attachments")

HEAD = 24
"""Bytes of a line to sort by, after what all lines start with. Its keys are sorted too, so the id is near its start."""


def to_examples(rows: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Examples:
    """Convert numbered rows to examples, not yet of any snapshot.

    An example's id is its own `id`, else a hash of its content. A value that is not a mapping is wrapped: inputs as
    `{"input": …}`, reference outputs as `{"output": …}`. Raise InputError, with the row's number, for a row without
    inputs, an unknown field, or a duplicate id.
    """
    numbers, unnamed = array("q"), bytearray()

    def made() -> Iterator[ExampleRow]:
        for number, row in rows:
            yield _to_example(row, len(numbers), f"{where}:{number}")
            numbers.append(number)
            unnamed.append(row.get("id") is None)

    examples = draft(made(), lambda ids: _numbered(ids, numbers, unnamed, where))
    if not examples:
        raise InputError(f"{where}: got no rows, wanted at least one example")
    return examples


def _numbered(ids: Sequence[str], numbers: Sequence[int], unnamed: Sequence[int], where: str) -> dict[int, str]:
    """Return new ids, by place, for repeated rows without an id: each is another example.

    Raise InputError for a duplicate id.
    """
    new, first, repeats = dict[int, str](), dict[str, int](), Counter[str]()
    for place in repeated_places(ids):
        identity = ids[place]
        if unnamed[place]:
            repeats[identity] += 1
            if repeats[identity] > 1:
                identity = new[place] = derived_id(identity, repeats[identity])[:20]
        if identity in first:
            raise InputError(f"{where}:{numbers[place]}: duplicate id {identity!r}, first in row {first[identity]}")
        first[identity] = numbers[place]
    if new and (taken := {*new.values()}.intersection(ids)):
        raise InputError(f"{where}: got the id {min(taken)!r}, which a repeated row has, wanted another")
    return new


def snapshot_id(examples: Sequence[ExampleRow]) -> str:
    """Return a hash of the examples' content, independent of their order."""
    lines = examples.content_lines() if isinstance(examples, Examples) else SpilledLines.of(map(content_line, examples))
    digest = hashlib.sha256()
    for number in _sorted(lines):
        digest.update(lines[number])
        digest.update(b"\n")
    return "snap-" + digest.hexdigest()[:24]


def _sorted(lines: SpilledLines) -> Iterator[int]:
    """Yield the numbers of the lines in their sorted order, with no more of each in memory than HEAD bytes."""
    start = len(_common_start(lines))
    heads = np.fromiter((line[start : start + HEAD] for line in lines), f"S{HEAD}", len(lines))
    for _, numbers in groupby(np.argsort(heads, kind="stable"), key=heads.__getitem__):
        same = [int(number) for number in numbers]
        yield from same if len(same) == 1 else sorted(same, key=lines.__getitem__)


def _common_start(lines: SpilledLines) -> bytes:
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
            yield to_arrow("snapshots", [_snapshot(identity, len(examples), splits)])

        tables = [("examples", _tables(examples, identity, splits)), ("snapshots", row())]
        store.publish_all(identity, tables)
    if name is not None:
        make_current(store, identity, name=name, source=source, description=description, metadata=metadata)
    return identity


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
    before, since = _current_version(store, name)
    if before == identity:
        return
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


def _snapshot(identity: str, count: int, splits: Mapping[str, int]) -> SnapshotRow:
    return SnapshotRow(snapshot_id=identity, n_examples=count, splits=to_json(dict(splits)))


def _tables(examples: Iterable[ExampleRow], identity: str, splits: Counter[str]) -> Iterator[pa.Table]:
    """Yield the rows of a snapshot in blocks, and count how many are in each split."""
    for block in in_blocks(examples, size_of):
        splits.update(example.split for example in block if example.split is not None)
        columns = {name: [getattr(example, name) for example in block] for name in ExampleRow.__slots__}
        yield from_columns("examples", {**columns, "snapshot_id": (identity,) * len(block)})


def current_snapshot(store: Store, name: str) -> str | None:
    """Return the id of a dataset's current snapshot; None if there is none. Damaged versions are left out."""
    return _current_version(store, name)[0]


def _current_version(store: Store, name: str) -> tuple[str | None, datetime | None]:
    """Return the id of a dataset's current snapshot, and since when it is current; None if there is none."""
    store.verify_table("dataset_versions")
    query = "select snapshot_id, recorded_at from source.dataset_versions where name = ? order by recorded_at desc"
    rows = store.query(query, [name])
    return rows[0] if rows else (None, None)


def load_snapshot(store: Store, identity: str) -> Examples:
    """Return the examples of a snapshot, in their original order. Raise InputError for an unknown id."""
    if not store.is_sealed("snapshots", identity):
        raise InputError(f"snapshot {identity!r}: not in the store {store.layout.root}")
    path = store.layout.sealed("examples", identity)
    verify(store.filesystem, path, state_of(store.layout, store.filesystem, path))
    return stored(store.filesystem, path)


def _to_example(row: Mapping[str, Any], position: int, where: str) -> ExampleRow:
    inputs = _one_of(row, INPUTS, where)
    if inputs is None or inputs in ("", {}):
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
            "attachments": _json(row.get("attachments"), "value"),
        }
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if is_erased(content["inputs"]):
        raise InputError(f"{where}: got an erased example, wanted its texts")
    if row.get("id") is None:
        identity = derived_id(to_json({"example_id": "", **content}))[:20]
    else:
        identity = _valid_text(str(row["id"]), "id", where)
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
    value = row.get(name)
    if value is not None and not isinstance(value, str | int):
        raise InputError(f"{where}: {name}: got {type(value).__name__}, wanted a text")
    return None if value is None else _valid_text(str(value), name, where)


def _valid_text(text: str, name: str, where: str) -> str:
    """Return the text. Raise InputError if it is not valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {name}: not text: {error}") from error
    return text
