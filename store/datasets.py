"""From what a dataset spec says to examples, and how one version of a dataset differs from another."""

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from specs.columns import example_row
from specs.dataset import DatasetSpec
from specs.errors import InputError, describe
from specs.paths import located
from specs.reference import load
from store.conversations import conversation_rows
from store.parquet import Store
from store.records import ExampleRow
from store.rows import Numbered, plain, read_rows, stem
from store.snapshots import content_of, current_snapshot, freeze, load_snapshot, to_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A dataset that was read: all of its examples, and those that the spec takes."""

    name: str | None
    source: str
    every: list[ExampleRow]
    taken: list[ExampleRow]

    def keep(self, store: Store) -> str:
        """Freeze what was read, and what is taken of it. Returns the snapshot of what is taken."""
        identity = self.every[0].snapshot_id or freeze(store, self.every, name=self.name, source=self.source)
        if len(self.taken) == len(self.every):
            return identity
        return freeze(store, self.taken, name=None, source=self.source)


def load_dataset(store: Store, spec: DatasetSpec) -> Loaded:
    """The examples that a dataset spec stands for, not frozen yet. Raises InputError."""
    every = _examples(store, spec)
    name = spec.name or (stem(located(spec.path)) if spec.path is not None else None)
    source = spec.path or spec.function or "rows"
    return Loaded(name=name, source=source, every=every, taken=_taken(every, spec))


def grown(old: Sequence[ExampleRow], new: Iterable[ExampleRow], where: str) -> list[ExampleRow]:
    """The old examples, and those of the new ones that are not among them.

    Raises InputError for a new one that bears an old one's id and is another.
    """
    known = {example.example_id: content_of(example) for example in old}
    together = [replace(example, snapshot_id="") for example in old]
    first = max((example.position for example in old), default=-1) + 1
    for example in new:
        if example.example_id not in known:
            together.append(replace(example, position=first + len(together) - len(old)))
        elif known[example.example_id] != content_of(example):
            raise InputError(
                f"{where}: example {example.example_id!r} is in the dataset with other content, wanted an id of its own"
            )
    return together


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Ids of examples, in the order of their datasets."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    same: int


def compare_examples(old: Sequence[ExampleRow], new: Sequence[ExampleRow]) -> Difference:
    """How the new examples differ from the old ones."""
    before, after = ({example.example_id: content_of(example) for example in side} for side in (old, new))
    both = [identity for identity in after if identity in before]
    changed = [identity for identity in both if before[identity] != after[identity]]
    return Difference(
        added=[identity for identity in after if identity not in before],
        removed=[identity for identity in before if identity not in after],
        changed=changed,
        same=len(both) - len(changed),
    )


def find_snapshot(store: Store, reference: str) -> str:
    """The snapshot that a dataset's name or a snapshot's id stands for. Raises InputError."""
    if identity := current_snapshot(store, reference):
        return identity
    if store.query("select 1 from source.snapshots where snapshot_id = ?", [reference]):
        return reference
    known = ", ".join(row[0] for row in store.query("select distinct name from source.dataset_versions order by 1"))
    raise InputError(f"dataset {reference!r}: not in the store, wanted one of: {known or 'none is there yet'}")


def _examples(store: Store, spec: DatasetSpec) -> list[ExampleRow]:
    if spec.path is not None:
        return to_examples(_mapped(read_rows(spec.path), spec, spec.path), spec.path)
    if spec.function is not None:
        where = f"function {spec.function!r}, row"
        return to_examples(_mapped(_called(spec.function), spec, where), where)
    if spec.rows is not None:
        where = "dataset row"
        return to_examples(_mapped(enumerate(spec.rows, start=1), spec, where), where)
    return load_snapshot(store, spec.snapshot or find_snapshot(store, spec.name or ""))


def _mapped(rows: Iterable[tuple[int, Mapping[str, Any]]], spec: DatasetSpec, where: str) -> Numbered:
    for number, row in rows:
        try:
            given = dict(row) if spec.columns is None else example_row(row, spec.columns)
            made = [given] if spec.turns is None else conversation_rows(given, spec.turns)
            yield from ((number, one) for one in made)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


def _called(function: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows that a function yields or returns."""
    try:
        for number, row in enumerate(_iterated(load(function)()), start=1):
            if not isinstance(row, Mapping):
                raise InputError(f"row {number}: got {type(row).__name__}, wanted a mapping")
            yield number, {str(name): plain(value, f"row {number}: {name}") for name, value in row.items()}
    except InputError as error:
        said = str(error)
        raise InputError(said if repr(function) in said else f"function {function!r}: {said}") from error
    except Exception as error:
        raise InputError(f"function {function!r}: {describe(error)}") from error


def _iterated(returned: Any) -> Iterable[Any]:
    if inspect.iscoroutine(returned):
        returned.close()
    if inspect.isawaitable(returned) or hasattr(returned, "__aiter__"):
        raise InputError("got something to await, wanted a plain function that yields rows")
    return returned.to_dict(orient="records") if isinstance(returned, pd.DataFrame) else returned


def _taken(examples: list[ExampleRow], spec: DatasetSpec) -> list[ExampleRow]:
    """Those of the wanted splits, and of these the sample; in the dataset's order."""
    if not examples:
        raise InputError(f"dataset {spec.name or spec.snapshot!r}: has no examples yet, wanted at least one")
    taken = [example for example in examples if spec.splits is None or example.split in spec.splits]
    if not taken:
        known = sorted({example.split for example in examples if example.split is not None})
        raise InputError(f"dataset: no example of splits {spec.splits}, wanted some of {known or 'none at all'}")
    if spec.sample is None or spec.sample >= len(taken):
        return taken
    drawn = {example.example_id for example in sorted(taken, key=lambda one: _lot(one, spec.seed))[: spec.sample]}
    return [example for example in taken if example.example_id in drawn]


def _lot(example: ExampleRow, seed: int) -> bytes:
    """An example's lot depends on the seed and its id alone: what a dataset grows by hardly changes what is drawn."""
    return hashlib.sha256(f"{seed}:{example.example_id}".encode()).digest()
