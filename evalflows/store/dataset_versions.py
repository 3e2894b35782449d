"""Make new versions of a dataset, and compare versions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.store.records import ExampleRow, from_json
from evalflows.store.schemas import is_erased
from evalflows.store.snapshots import (
    Examples,
    content_digest,
    current_snapshot,
    draft,
    freeze,
    load_snapshot,
    to_examples,
)
from evalflows.store.store import Store

JSON_FIELDS = ("inputs", "reference_outputs", "metadata", "attachments")
PLAIN_FIELDS = ("split", "cluster")


def merge_examples(old: Iterable[ExampleRow], new: Iterable[ExampleRow], where: str) -> Examples:
    """Return the old examples, without erased ones, followed by the new ones that are not among them.

    Raise InputError if a new example has the id of an old one but different content.
    """
    return draft(_merged(old, new, where))


def _merged(old: Iterable[ExampleRow], new: Iterable[ExampleRow], where: str) -> Iterator[ExampleRow]:
    known: dict[str, bytes] = {}
    for example in old:
        known[example.example_id] = content_digest(example)
        if not is_erased(example.inputs):
            yield example
    for example in new:
        if example.example_id not in known:
            yield example
        elif known[example.example_id] != content_digest(example):
            raise InputError(
                f"{where}: got example {example.example_id!r}, in the dataset with other content, wanted a new id"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The ids of added, removed and changed examples, in the order of their datasets."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    same: int


def compare_examples(old: Iterable[ExampleRow], new: Iterable[ExampleRow]) -> Difference:
    """Return how the new examples differ from the old ones."""
    before, after = ({example.example_id: content_digest(example) for example in side} for side in (old, new))
    both = [identity for identity in after if identity in before]
    changed = [identity for identity in both if before[identity] != after[identity]]
    return Difference(
        added=[identity for identity in after if identity not in before],
        removed=[identity for identity in before if identity not in after],
        changed=changed,
        same=len(both) - len(changed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """The version of a dataset after a change, and how it differs from the one before."""

    name: str
    snapshot: str
    n_examples: int
    difference: Difference


def add_examples(
    store: Store, name: str, examples: Sequence[ExampleRow], *, source: str, replace: bool = False
) -> NewVersion:
    """Add examples to a dataset, or create it; with `replace`, it has no others afterwards.

    Raise InputError if one has the id of an old example but other content.
    """
    old = _current(store, name)
    return _new_version(store, name, old, examples if replace else merge_examples(old, examples, source), source)


def edit_example(
    store: Store, name: str, identity: str, changes: Mapping[str, Any] | None, *, seen: str, source: str
) -> NewVersion:
    """Change fields of one example of a dataset; its other fields stay. Without changes, remove it.

    Raise InputError if the dataset does not have it, if it is not the one `seen` (its `content_key`), or if it would be
    no example any more, or the dataset empty.
    """
    old = _current(store, name)
    known = {identity: number for number, identity in enumerate(old.ids)}
    if identity not in known:
        raise NotFoundError(f"example {identity!r}: not in the newest version of dataset {name!r}")
    before = old[known[identity]]
    if content_key(before) != seen:
        raise InputError(f"example {identity!r}: has changed since it was shown, wanted its newest version")
    after = [] if changes is None else [*to_examples([(1, {**row_of(before), **changes})], "example")]
    kept = (row for row in old if row.example_id == identity or not is_erased(row.inputs))
    rows = draft(row for each in kept for row in (after if each.example_id == identity else [each]))
    return _new_version(store, name, old, rows, source)


def row_of(example: ExampleRow) -> dict[str, Any]:
    """Return an example as the row of a dataset's file."""
    fields = {name: from_json(getattr(example, name)) for name in JSON_FIELDS}
    return {"id": example.example_id} | fields | {name: getattr(example, name) for name in PLAIN_FIELDS}


def content_key(example: ExampleRow) -> str:
    """Return a text that is the same for examples with the same content only."""
    return content_digest(example).hex()


def _current(store: Store, name: str) -> Examples:
    snapshot = current_snapshot(store, name)
    return load_snapshot(store, snapshot) if snapshot else draft([])


def _new_version(store: Store, name: str, old: Examples, new: Sequence[ExampleRow], source: str) -> NewVersion:
    snapshot = freeze(store, new, name=name, source=source)
    return NewVersion(name=name, snapshot=snapshot, n_examples=len(new), difference=compare_examples(old, new))


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A value at a path of an example, such as `reference_outputs.answer`; None if it is missing on one side."""

    path: str
    old: Any
    new: Any


def field_changes(old: ExampleRow, new: ExampleRow) -> Iterator[FieldChange]:
    """Yield the values that differ between two versions of an example."""
    for name in JSON_FIELDS:
        before, after = (json.loads(getattr(row, name) or "null") for row in (old, new))
        yield from _changes(name, before, after)
    for name in PLAIN_FIELDS:
        yield from _changes(name, getattr(old, name), getattr(new, name))


def _changes(path: str, old: Any, new: Any) -> Iterator[FieldChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _changes(f"{path}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield FieldChange(path, old, new)
