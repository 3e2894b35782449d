"""LangSmith's datasets: names whose versions are snapshots, each containing the examples of the previous one."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalflows.compat.langsmith.attachments import to_stored
from evalflows.compat.langsmith.schemas import Dataset, Example, Fields, Identity
from evalflows.compat.langsmith.views import dataset_id, example_of
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.store.ingest.datasets import merge_examples
from evalflows.store.parquet import Store
from evalflows.store.records import from_json
from evalflows.store.snapshots import KNOWN, current_snapshot, freeze, load_snapshot, to_examples

SOURCE = "evalflows.compat.langsmith"
COLUMNS = ("inputs", "outputs", "reference_outputs", "metadata", "splits", "ids", "attachments", "source_run_ids")

_DATASETS = """
select v.name, arg_max(v.description, v.recorded_at) as description, min(v.recorded_at) as created_at,
       max(v.recorded_at) as modified_at, arg_max(s.n_examples, v.recorded_at) as example_count,
       arg_max(v.metadata, v.recorded_at) as metadata
from source.dataset_versions v join source.snapshots s using (snapshot_id)
group by v.name order by created_at desc
"""


def all_datasets(store: Store) -> list[Dataset]:
    """Return every named dataset, newest first."""
    names = ("name", "description", "created_at", "modified_at", "example_count")
    return [
        Dataset(
            id=dataset_id(row[0]) or "",
            metadata=from_json(row[5]),
            **dict(zip(names, row[:5], strict=True)),
        )
        for row in store.query(_DATASETS)
    ]


def find_dataset(store: Store, name: str | None, identity: Identity | None) -> Dataset:
    """Return the dataset with this name or id. Raises InputError if it does not exist, or both or none are given."""
    if (name is None) == (identity is None):
        raise InputError("dataset: wanted exactly one of dataset_name and dataset_id")
    datasets = all_datasets(store)
    for dataset in datasets:
        if dataset.name == name or (identity is not None and dataset.id == str(identity)):
            return dataset
    known = ", ".join(dataset.name for dataset in datasets) or "none yet"
    raise InputError(f"dataset {name or str(identity)!r}: not in the store, wanted one of: {known}")


def create(store: Store, name: str, description: str | None, metadata: Mapping[str, Any] | None) -> Dataset:
    """Create a dataset without examples: a name for the empty snapshot. Raises InputError if the name is taken."""
    if current_snapshot(store, name) is not None:
        raise InputError(f"dataset {name!r}: already in the store, wanted another name, or create_examples")
    freeze(store, [], name=name, source=SOURCE, description=description, metadata=metadata)
    return find_dataset(store, name, None)


def create_filled(store: Store, name: str, description: str | None, rows: Sequence[Fields]) -> Dataset:
    """Create a dataset with its examples, as one version. Raises InputError, and creates none, if a row is invalid."""
    if current_snapshot(store, name) is not None:
        raise InputError(f"dataset {name!r}: already in the store, wanted another name, or create_examples")
    examples = to_examples(enumerate(rows, start=1), f"example of dataset {name!r}")
    freeze(store, examples, name=name, source=SOURCE, description=description)
    return find_dataset(store, name, None)


def add(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> list[str]:
    """Add rows to a dataset, except examples that it already has. Return the rows' ids.

    Raises InputError if a row is not an example, or has the id of an existing example with other content.
    """
    where = f"example of dataset {dataset.name!r}"
    new = to_examples(enumerate(rows, start=1), where) if rows else []
    old = load_snapshot(store, current_snapshot(store, dataset.name) or "")
    merged = merge_examples(old, new, where)
    if len(merged) > len(old):
        description, metadata = dataset.description, dataset.metadata
        freeze(store, merged, name=dataset.name, source=SOURCE, description=description, metadata=metadata)
    return [example.example_id for example in new]


def examples_of(store: Store, dataset: Dataset, snapshot: str | None = None) -> list[Example]:
    """Return the examples of a dataset, in order; by default of its current snapshot."""
    rows = load_snapshot(store, snapshot or current_snapshot(store, dataset.name) or "")
    return [example_of(row, dataset.id) for row in rows]


def as_row(example: object, *, may_read_files: bool = False) -> Fields:
    """Convert an example in any of LangSmith's shapes to a row. Raises InputError for anything else."""
    if isinstance(example, Mapping):
        row = {str(key): value for key, value in example.items() if value is not None}
    else:
        row = {key: value for key in KNOWN if (value := getattr(example, key, None)) is not None}
        if "inputs" not in row:
            raise InputError(f"example: got {type(example).__name__}, wanted an object with inputs and outputs")
    if attachments := row.pop("attachments", None):
        row["attachments"] = to_stored(attachments, "example", may_read_files=may_read_files)
    splits = row.get("split")
    if isinstance(splits, list | tuple):
        if len(splits) > 1:
            raise InputError(f"example: split: got {splits!r}, wanted at most one")
        row["split"] = next(iter(splits), None)
    return row


def as_rows(
    examples: Iterable[object] | None,
    columns: Mapping[str, Sequence[Any] | None],
    *,
    may_read_files: bool = False,
) -> list[Fields]:
    """Convert examples, or parallel lists of their fields, to rows. Raises InputError for lists of unequal length."""
    lists = {name: values for name, values in columns.items() if values is not None}
    if unknown := lists.keys() - {*COLUMNS}:
        raise InputError(f"create_examples: got {min(unknown)!r}, wanted only examples or {', '.join(COLUMNS)}")
    if examples is not None:
        if lists:
            raise InputError(f"create_examples: got both examples and {min(lists)}, wanted one of them")
        return [as_row(example, may_read_files=may_read_files) for example in examples]
    if "inputs" not in lists:
        raise InputError("create_examples: got neither examples nor inputs, wanted one of them")
    for name, values in lists.items():
        if len(values) != (wanted := len(lists["inputs"])):
            raise InputError(f"create_examples: {name}: got {len(values)}, wanted {wanted}, as many as inputs")
    fields = {"splits": "split", "ids": "id", "source_run_ids": "source_run_id"}
    names = [fields.get(name, name) for name in lists]
    rows = (dict(zip(names, values, strict=True)) for values in zip(*lists.values(), strict=True))
    return [as_row(row, may_read_files=may_read_files) for row in rows]


def as_data(store: Store, data: Any) -> DatasetSpec:
    """Convert the `data` of `evaluate` (a dataset, its name or id, or examples) to a spec. Raises InputError."""
    if data is None:
        raise InputError("evaluate: data: got None, wanted a dataset, its name or id, or examples")
    if isinstance(data, str | uuid.UUID | Dataset):
        return _whole(store, data.name if isinstance(data, Dataset) else data)
    examples = list(data)
    origins = {getattr(example, "dataset_id", None) for example in examples}
    for dataset in all_datasets(store) if len(origins) == 1 and None not in origins else ():
        if dataset.id in origins and examples == examples_of(store, dataset):
            return DatasetSpec(name=dataset.name)  # the whole dataset: the experiment refers to it by name
    if not examples:
        raise InputError("evaluate: data: got no examples, wanted at least one")
    return DatasetSpec(rows=[as_row(example) for example in examples])


def _whole(store: Store, reference: Identity) -> DatasetSpec:
    named = next((d for d in all_datasets(store) if str(reference) in (d.name, d.id)), None)
    dataset = named or find_dataset(store, str(reference), None)
    if not dataset.example_count:
        raise InputError(f"dataset {dataset.name!r}: has no examples yet, wanted some from create_examples")
    return DatasetSpec(name=dataset.name)
