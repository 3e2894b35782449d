"""Changes and versions of LangSmith's datasets: each change is a new snapshot; experiments keep theirs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from evalflows.compat.langsmith.attachments import to_stored
from evalflows.compat.langsmith.datasets import SOURCE, as_row, find_dataset
from evalflows.compat.langsmith.schemas import Dataset, DatasetDiffInfo, DatasetVersion, ExampleUpdate, Fields, Identity
from evalflows.specs.errors import InputError, short
from evalflows.store.ingest.datasets import compare_examples
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow, from_json
from evalflows.store.snapshots import current_snapshot, freeze, load_snapshot, to_examples

_HOLDING = """
select v.name from (
    select name, arg_max(snapshot_id, recorded_at) as snapshot_id, max(recorded_at) as recorded_at
    from source.dataset_versions group by name
) v join source.examples e using (snapshot_id) where e.example_id = ? order by v.recorded_at desc
"""
_VERSIONS = "select recorded_at, snapshot_id from source.dataset_versions where name = ? order by recorded_at desc"
_UPDATED = {field.name for field in fields(ExampleUpdate)}


def holding(store: Store, example: Identity) -> list[Dataset]:
    """Return the datasets that have this example now, the last changed first. Raises InputError if none has."""
    names = [row[0] for row in store.query(_HOLDING, [str(example)])]
    if not names:
        raise InputError(f"example {str(example)!r}: in no dataset's current version")
    return [find_dataset(store, name, None) for name in names]


def only_holding(store: Store, example: Identity) -> Dataset:
    """Return the dataset that has this example. Raises InputError if none has, or several do."""
    datasets = holding(store, example)
    if len(datasets) > 1:
        names = ", ".join(dataset.name for dataset in datasets)
        raise InputError(f"example {str(example)!r}: in the datasets {names}, wanted the dataset_id of one")
    return datasets[0]


def versions_of(store: Store, dataset: Dataset) -> list[DatasetVersion]:
    """Return the versions of a dataset, newest first."""
    return [
        DatasetVersion(as_of=moment, snapshot_id=snapshot)
        for moment, snapshot in store.query(_VERSIONS, [dataset.name])
    ]


def version_at(store: Store, dataset: Dataset, as_of: datetime | str | None) -> DatasetVersion:
    """Return the version that was current at a time, in UTC if it names no zone; None and "latest" mean now.

    Raises InputError for a time before the first version, and for tags, which versions do not have here.
    """
    versions = versions_of(store, dataset)
    if as_of is None or as_of == "latest":
        return versions[0]
    if isinstance(as_of, str):
        raise InputError(f"as_of: got {short(as_of)}, wanted a time or 'latest': versions have no tags here")
    moment = as_of if as_of.tzinfo is not None else as_of.replace(tzinfo=UTC)
    version = next((version for version in versions if version.as_of <= moment), None)
    if version is None:
        raise InputError(f"as_of: got {moment}, wanted a time after {versions[-1].as_of}, when {dataset.name!r} began")
    return version


def difference(store: Store, dataset: Dataset, before: datetime | str, after: datetime | str) -> DatasetDiffInfo:
    """Return which examples two versions do not share."""
    old, new = (load_snapshot(store, version_at(store, dataset, as_of).snapshot_id) for as_of in (before, after))
    found = compare_examples(old, new)
    return DatasetDiffInfo(examples_modified=found.changed, examples_added=found.added, examples_removed=found.removed)


def put(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    """Add rows, which have ids, to a dataset; one with the id of an existing example replaces it.

    Raises InputError if a row is not an example.
    """
    new = {str(row["id"]): row for row in rows}
    old = [as_fields(row) for row in _current(store, dataset)]
    known = {row["id"] for row in old}
    _freeze(store, dataset, [new.get(row["id"], row) for row in old] + [new[key] for key in new if key not in known])


def remove(store: Store, dataset: Dataset, examples: Iterable[Identity]) -> None:
    """Remove examples from a dataset's current version. Raises InputError if it does not have one of them."""
    removed = {str(example) for example in examples}
    old = [as_fields(row) for row in _current(store, dataset)]
    if unknown := removed - {row["id"] for row in old}:
        raise InputError(f"example {min(unknown)!r}: not in the dataset {dataset.name!r}")
    _freeze(store, dataset, [row for row in old if row["id"] not in removed])


def update(store: Store, dataset: Dataset, updates: Sequence[Fields], *, may_read_files: bool = False) -> list[str]:
    """Change examples of a dataset, each by the fields of an update that are not None. Return their ids.

    Raises InputError, and changes none, if the dataset lacks one of them or an update is invalid.
    """
    old = {row.example_id: as_fields(row) for row in _current(store, dataset)}
    rows = []
    for number, changes in enumerate(updates, start=1):
        identity = str(changes.get("id"))
        if identity not in old:
            raise InputError(f"update {number}: example {identity!r}: not in the dataset {dataset.name!r}")
        rows.append(_updated(old[identity], changes, may_read_files))
    put(store, dataset, rows)
    return [row["id"] for row in rows]


def as_update(changes: object) -> Fields:
    """Convert an update in any of LangSmith's shapes to its fields that are not None. Raises InputError."""
    if isinstance(changes, Mapping):
        given = dict(changes)
    elif is_dataclass(changes) or hasattr(changes, "id"):
        given = {name: getattr(changes, name, None) for name in _UPDATED}
    else:
        raise InputError(f"update: got {type(changes).__name__}, wanted an ExampleUpdate")
    if unknown := given.keys() - _UPDATED:
        raise InputError(f"update: got the field {min(unknown)!r}, wanted only {', '.join(sorted(_UPDATED))}")
    return {name: value for name, value in given.items() if value is not None}


def as_fields(row: ExampleRow) -> Fields:
    """Return a stored example as a row of its fields, with its id."""
    stored = {
        "id": row.example_id,
        "inputs": from_json(row.inputs),
        "outputs": from_json(row.reference_outputs),
        "metadata": from_json(row.metadata),
        "split": row.split,
        "cluster": row.cluster,
        "attachments": from_json(row.attachments),
    }
    return {name: value for name, value in stored.items() if value is not None}


def _updated(old: Fields, changes: Fields, may_read_files: bool) -> Fields:
    own: Fields = {name: changes[name] for name in ("inputs", "outputs", "metadata", "split") if name in changes}
    attachments = _kept(old.get("attachments") or {}, changes.get("attachments_operations"))
    attachments |= to_stored(changes.get("attachments") or {}, f"example {old['id']!r}", may_read_files=may_read_files)
    changed: Fields = {**old, **own, "attachments": attachments}
    return as_row(changed)


def _kept(attachments: Fields, operations: Any) -> Fields:
    """Return the attachments that an update keeps: without operations all, else those retained or renamed."""
    if operations is None:
        return dict(attachments)
    rename, retain = (
        operations.get(name) if isinstance(operations, Mapping) else getattr(operations, name)
        for name in ("rename", "retain")
    )
    kept: dict[str, str] = {**(rename or {}), **{name: name for name in retain or ()}}
    if unknown := kept.keys() - attachments.keys():
        raise InputError(
            f"attachments_operations: got {min(unknown)!r}, wanted one of: {', '.join(attachments) or 'none'}"
        )
    return {new: attachments[name] for name, new in kept.items()}


def _current(store: Store, dataset: Dataset) -> Sequence[ExampleRow]:
    return load_snapshot(store, current_snapshot(store, dataset.name) or "")


def _freeze(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    examples = to_examples(enumerate(rows, start=1), f"example of dataset {dataset.name!r}") if rows else []
    freeze(
        store,
        examples,
        name=dataset.name,
        source=SOURCE,
        description=dataset.description,
        metadata=dataset.metadata,
    )
