"""Datasets: their list, the versions of one, its checks and its examples, and how two versions differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from evalflows.specs.errors import NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.store.dataset_versions import Difference, FieldChange, compare_examples, field_changes
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import Examples, load_snapshot
from evalflows.store.sql import ask, ask_records, order_by
from evalflows.store.store import Store

SORTS = {"name": "name", "examples": "n_examples", "versions": "versions", "newest": "since"}
"""What the list is sorted by."""

_DATASETS = "select name, snapshot_id, n_examples, splits::text, versions, source, since, null as deleted from datasets"

_DELETED = """
union all
select v.name, v.snapshot_id, s.n_examples, s.splits::text, count(*) over (partition by v.name), v.source,
       v.recorded_at, v.deleted
from (select *, max(recorded_at) over (partition by name) as deleted from dataset_versions) v
join snapshots s using (snapshot_id) where v.name not in (select name from datasets)
qualify row_number() over (partition by v.name order by v.recorded_at desc) = 1
"""

_RUNS = """
select dataset_name, count(*), max(started_at) from experiments where dataset_name is not null group by 1
"""

_DRAFTS = """
select d.name, count(*) from datasets d join examples e using (snapshot_id)
where (e.metadata -> '$.draft')::varchar = 'true' group by all order by 1
"""

_VERSIONS = """
select v.recorded_at, v.snapshot_id, v.parent_snapshot_id, s.n_examples, v.source
from dataset_versions v join snapshots s using (snapshot_id)
where v.name = $1 order by v.recorded_at desc
"""

_CHECKS = """
select passed, severity, message from checks
where subject_kind = 'snapshot' and subject_id = ? and (not passed or passed is null or severity = 'error')
order by passed nulls first, message
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDataset:
    """The newest version of a dataset."""

    name: str
    snapshot_id: str
    n_examples: int
    splits: str  # JSON: {split: number of examples}
    versions: int
    source: str
    since: datetime
    deleted: datetime | None  # since when its name is free

    @property
    def by_split(self) -> dict[str, int]:
        """The number of examples in each split."""
        return dict(json.loads(self.splits))


def listed_datasets(store: Store, sort: str = "name", *, with_deleted: bool = False) -> list[ListedDataset]:
    """Return all datasets, sorted by one of SORTS."""
    query = f"{_DATASETS} {_DELETED if with_deleted else ''}"
    return ask_records(store, ListedDataset, f"{query} {order_by(sort, SORTS, 'name')}")


def dataset_names(store: Store) -> list[str]:
    (rows,) = ask(store, ("select name from datasets order by name", []))
    return [name for (name,) in rows]


def runs_by_dataset(store: Store) -> Mapping[str, tuple[int, datetime]]:
    """Return how many experiments ran on each dataset, of whatever version, and when the last one started."""
    (rows,) = ask(store, (_RUNS, []))
    return {name: (count, last) for name, count, last in rows}


def drafts_by_dataset(store: Store) -> Mapping[str, int]:
    """Return how many drafts, which nobody has accepted, the newest version of each dataset has, if it has some."""
    (rows,) = ask(store, (_DRAFTS, []))
    return dict(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVersion:
    """A version of a dataset."""

    recorded_at: datetime
    snapshot_id: str
    before: str | None  # the snapshot that it replaced
    n_examples: int
    source: str


def dataset_versions(store: Store, name: str) -> list[DatasetVersion]:
    """Return the versions of a dataset, newest first; none of an unknown name."""
    return ask_records(store, DatasetVersion, _VERSIONS, [name])


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCheck:
    """A check of a snapshot that failed, or could have been an error."""

    passed: bool | None
    severity: str
    message: str

    @property
    def mark(self) -> str:
        return "ok" if self.passed else "failed" if self.severity == "error" else "warning"


def snapshot_checks(store: Store, snapshot: str) -> list[SnapshotCheck]:
    """Return the checks of a snapshot, failed ones first; those that passed only if they could have been errors."""
    return ask_records(store, SnapshotCheck, _CHECKS, [snapshot])


def difference_text(difference: Difference) -> str:
    """Return how many examples were added, removed and changed."""
    added, removed, changed = len(difference.added), len(difference.removed), len(difference.changed)
    counts = ((added, "added"), (removed, "removed"), (changed, "changed"))
    return ", ".join([*(f"{count} {what}" for count, what in counts if count), f"{difference.same} unchanged"])


def changed_examples(
    store: Store, old: str, new: str, most: int
) -> tuple[Difference, list[tuple[str, list[FieldChange]]]]:
    """Return how a snapshot differs from another, and the values that differ in the first changed examples."""
    before, after = load_snapshot(store, old), load_snapshot(store, new)
    difference = compare_examples(before, after)
    shown = difference.changed[:most]
    pairs = zip(_chosen(before, shown), _chosen(after, shown), strict=True)
    return difference, [(example.example_id, [*field_changes(example, other)]) for example, other in pairs]


def _chosen(examples: Examples, identities: Sequence[str]) -> Iterator[ExampleRow]:
    places = {identity: index for index, identity in enumerate(examples.ids)}
    return examples.rows([places[identity] for identity in identities])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExample:
    """An example; its contents are JSON."""

    example_id: str
    inputs: str
    reference_outputs: str | None
    split: str | None


def listed_examples(
    store: Store, snapshot: str, text: str | None, *, limit: int, offset: int = 0
) -> tuple[list[ListedExample], int]:
    """Return a page of a snapshot's examples that have a text, and how many have it."""
    wanted = [snapshot, text]
    (rows, ((count,),)) = (
        ask_records(store, ListedExample, f"{_EXAMPLES} limit $3 offset $4", [*wanted, limit, offset]),
        ask(store, (f"select count(*) from ({_EXAMPLES})", wanted))[0],
    )
    return rows, count


def stored_example(store: Store, snapshot: str, identity: str) -> ExampleRow:
    """Return one example of a snapshot. Raise NotFoundError if it does not have it."""
    examples = load_snapshot(store, snapshot)
    if identity not in examples.ids:
        raise NotFoundError(f"example {identity!r}: not in the snapshot {snapshot}")
    return next(_chosen(examples, [identity]))


_EXAMPLES = """
select example_id, inputs::varchar, reference_outputs::varchar, split from examples
where snapshot_id = $1
  and ($2::varchar is null or example_id = $2 or contains(lower(inputs::varchar), lower($2))
       or contains(lower(reference_outputs::varchar), lower($2)))
order by position, example_id
"""
