"""Datasets by LangSmith's shapes: a name whose versions are snapshots, each with the examples of the one before."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compat.langsmith.schemas import Dataset, Example, Fields, Identity
from compat.langsmith.views import dataset_id, example_of
from specs.dataset import DatasetSpec
from specs.errors import InputError
from store.datasets import grown
from store.parquet import Store
from store.records import from_json
from store.snapshots import KNOWN, current_snapshot, freeze, load_snapshot, to_examples

SOURCE = "compat.langsmith"
COLUMNS = ("inputs", "outputs", "reference_outputs", "metadata", "splits", "ids", "source_run_ids")

_DATASETS = """
select v.name, arg_max(v.description, v.recorded_at) as description, min(v.recorded_at) as created_at,
       max(v.recorded_at) as modified_at, arg_max(s.n_examples, v.recorded_at) as example_count,
       arg_max(v.metadata, v.recorded_at) as metadata
from source.dataset_versions v join source.snapshots s using (snapshot_id)
group by v.name order by created_at desc
"""


def all_datasets(store: Store) -> list[Dataset]:
    """Every dataset that has a name, the newest first."""
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
    """The dataset of a name or an id. Raises InputError for none such, or unless just one of the two is given."""
    if (name is None) == (identity is None):
        raise InputError("dataset: wanted just one of dataset_name and dataset_id")
    every = all_datasets(store)
    for dataset in every:
        if dataset.name == name or (identity is not None and dataset.id == str(identity)):
            return dataset
    known = ", ".join(dataset.name for dataset in every) or "none is there yet"
    raise InputError(f"dataset {name or str(identity)!r}: not in the store, wanted one of: {known}")


def create(store: Store, name: str, description: str | None, metadata: Mapping[str, Any] | None) -> Dataset:
    """A dataset without examples: its name stands for the empty snapshot. Raises InputError for a taken name."""
    if current_snapshot(store, name) is not None:
        raise InputError(f"dataset {name!r}: is in the store already, wanted another name, or create_examples")
    freeze(store, [], name=name, source=SOURCE, description=description, metadata=metadata)
    return find_dataset(store, name, None)


def add(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> list[str]:
    """Let a dataset grow by rows; one that is among its examples already is not added again. Returns the rows' ids.

    Raises InputError for a row that is no example, or bears the id of an example that is another.
    """
    where = f"example of dataset {dataset.name!r}"
    new = to_examples(enumerate(rows, start=1), where) if rows else []
    old = load_snapshot(store, current_snapshot(store, dataset.name) or "")
    together = grown(old, new, where)
    if len(together) > len(old):
        description, metadata = dataset.description, dataset.metadata
        freeze(store, together, name=dataset.name, source=SOURCE, description=description, metadata=metadata)
    return [example.example_id for example in new]


def examples_of(store: Store, dataset: Dataset) -> list[Example]:
    """The examples of a dataset, in order."""
    rows = load_snapshot(store, current_snapshot(store, dataset.name) or "")
    return [example_of(row, dataset.id) for row in rows]


def as_row(example: object) -> Fields:
    """An example in any of LangSmith's shapes as a row. Raises InputError for what is none."""
    if isinstance(example, Mapping):
        row = {str(key): value for key, value in example.items() if value is not None}
    else:
        row = {key: value for key in KNOWN if (value := getattr(example, key, None)) is not None}
        if "inputs" not in row:
            raise InputError(f"example: got {type(example).__name__}, wanted one of inputs and outputs")
    if not row.get("attachments"):
        row.pop("attachments", None)
    splits = row.get("split")
    if isinstance(splits, list | tuple):
        if len(splits) > 1:
            raise InputError(f"example: split: got {splits!r}, wanted just one")
        row["split"] = next(iter(splits), None)
    return row


def as_rows(examples: Iterable[object] | None, columns: Mapping[str, Sequence[Any] | None]) -> list[Fields]:
    """Examples, or else lists of their parts that run in parallel, as rows. Raises InputError where these do not."""
    given = {name: values for name, values in columns.items() if values is not None}
    if unknown := given.keys() - {*COLUMNS}:
        raise InputError(f"create_examples: got {min(unknown)!r}, wanted only examples or {', '.join(COLUMNS)}")
    if examples is not None:
        if given:
            raise InputError(f"create_examples: got both examples and {min(given)}, wanted one of them")
        return [as_row(example) for example in examples]
    if "inputs" not in given:
        raise InputError("create_examples: got neither examples nor inputs, wanted one of them")
    for name, values in given.items():
        if len(values) != (wanted := len(given["inputs"])):
            raise InputError(f"create_examples: {name}: got {len(values)}, wanted {wanted}, as many as inputs")
    fields = {"splits": "split", "ids": "id", "source_run_ids": "source_run_id"}
    names = [fields.get(name, name) for name in given]
    return [as_row(dict(zip(names, values, strict=True))) for values in zip(*given.values(), strict=True)]


def as_data(store: Store, data: Any) -> DatasetSpec:
    """What `evaluate` may be given as data: a dataset, its name or its id, or examples. Raises InputError."""
    if data is None:
        raise InputError("evaluate: data: got None, wanted a dataset, its name or id, or examples")
    if isinstance(data, str | uuid.UUID | Dataset):
        return _whole(store, data.name if isinstance(data, Dataset) else data)
    examples = list(data)
    origins = {getattr(example, "dataset_id", None) for example in examples}
    for dataset in all_datasets(store) if len(origins) == 1 and None not in origins else ():
        if dataset.id in origins and examples == examples_of(store, dataset):
            return DatasetSpec(name=dataset.name)  # all of it: the experiment bears its name
    if not examples:
        raise InputError("evaluate: data: got no examples, wanted at least one")
    return DatasetSpec(rows=[as_row(example) for example in examples])


def _whole(store: Store, reference: Identity) -> DatasetSpec:
    named = next((d for d in all_datasets(store) if str(reference) in (d.name, d.id)), None)
    dataset = named or find_dataset(store, str(reference), None)
    if not dataset.example_count:
        raise InputError(f"dataset {dataset.name!r}: has no examples yet, wanted some by create_examples")
    return DatasetSpec(name=dataset.name)
