"""The methods of LangSmith's client that change examples, upload tables, and read a dataset's versions."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalflows.compat.langsmith import dataset_changes, datasets
from evalflows.compat.langsmith.schemas import Dataset, DatasetDiffInfo, DatasetVersion, Example, Fields, Identity
from evalflows.compat.langsmith.views import example_of
from evalflows.compat.refusal import refusing
from evalflows.specs.errors import InputError, short
from evalflows.store.ingest.file_formats import READERS, plain, read_rows, stem
from evalflows.store.parquet import Store
from evalflows.store.snapshots import load_snapshot

if TYPE_CHECKING:
    import pandas as pd

_ONLY_KV = "examples are key-value mappings"
COLUMNS = {
    "example_ids": "id",
    "inputs": "inputs",
    "outputs": "outputs",
    "metadata": "metadata",
    "splits": "split",
    "attachments_operations": "attachments_operations",
    "attachments": "attachments",
}
"""The lists that `update_examples` takes, and the field of an update that each fills."""


class ExampleMethods:
    """A change makes a new version of a dataset; experiments keep the version that they ran on."""

    def read_example(self, example_id: Identity, *, as_of: datetime | None = None) -> Example:
        """Return an example, by default as it is now. Raises InputError if no dataset has it."""
        store = Store()
        dataset = dataset_changes.holding(store, example_id)[0]
        snapshot = dataset_changes.version_at(store, dataset, as_of).snapshot_id
        found = next((row for row in load_snapshot(store, snapshot) if row.example_id == str(example_id)), None)
        if found is None:
            raise InputError(f"example {str(example_id)!r}: not in the dataset {dataset.name!r} at {as_of}")
        return example_of(found, dataset.id)

    def update_example(
        self,
        example_id: Identity,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        split: str | Sequence[str] | None = None,
        dataset_id: Identity | None = None,
        attachments_operations: Any = None,
        attachments: Mapping[str, Any] | None = None,
    ) -> Fields:
        """Replace the given fields of an example, which keeps its id. Raises InputError as `update_examples`."""
        update = {
            "id": example_id,
            "inputs": inputs,
            "outputs": outputs,
            "metadata": metadata,
            "split": split,
            "attachments_operations": attachments_operations,
            "attachments": attachments,
        }
        return self.update_examples(dataset_id=dataset_id, updates=[update])

    def update_examples(
        self,
        *,
        dataset_name: str | None = None,
        dataset_id: Identity | None = None,
        updates: Sequence[Any] | None = None,
        dangerously_allow_filesystem: bool = False,
        **kwargs: Any,
    ) -> Fields:
        """Change examples: by `updates`, or by the lists example_ids, inputs, outputs, metadata, splits and so on.

        Returns their count and ids. Raises InputError, and changes none, if an example does not exist or an update is
        invalid; also if the examples are of several datasets.
        """
        store, changes = Store(), [dataset_changes.as_update(update) for update in _updates(updates, kwargs)]
        dataset = _dataset_of(store, dataset_name, dataset_id, changes)
        ids = dataset_changes.update(store, dataset, changes, may_read_files=dangerously_allow_filesystem)
        return {"message": f"{len(ids)} examples updated", "count": len(ids), "example_ids": ids}

    def delete_example(self, example_id: Identity) -> None:
        """Leave an example out of the dataset's next version. Raises InputError if no dataset, or several, have it."""
        self.delete_examples([example_id])

    @refusing(hard_delete="earlier versions, on which experiments ran, keep the example")
    def delete_examples(self, example_ids: Sequence[Identity], *, hard_delete: bool = False) -> None:
        """Leave examples out of the dataset's next version. Raises InputError as `delete_example`."""
        store = Store()
        by_name: dict[str, list[Identity]] = {}
        for example in example_ids:
            by_name.setdefault(dataset_changes.only_holding(store, example).name, []).append(example)
        for name, examples in by_name.items():
            dataset_changes.remove(store, datasets.find_dataset(store, name, None), examples)

    def list_dataset_splits(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: str | datetime | None = None,
    ) -> list[str]:
        """Return the names of a dataset's splits."""
        store = Store()
        dataset = datasets.find_dataset(store, dataset_name, dataset_id)
        examples = load_snapshot(store, dataset_changes.version_at(store, dataset, as_of).snapshot_id)
        return sorted({example.split for example in examples if example.split is not None})

    def update_dataset_splits(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        split_name: str,
        example_ids: Sequence[Identity],
        remove: bool = False,
    ) -> None:
        """Put examples into a split, which they leave their earlier one for; with `remove`, take them out of it."""
        store, wanted = Store(), {str(example) for example in example_ids}
        dataset = datasets.find_dataset(store, dataset_name, dataset_id)
        snapshot = dataset_changes.version_at(store, dataset, None).snapshot_id
        rows = [dataset_changes.as_fields(row) for row in load_snapshot(store, snapshot) if row.example_id in wanted]
        if unknown := wanted - {row["id"] for row in rows}:
            raise InputError(f"example {min(unknown)!r}: not in the dataset {dataset.name!r}")
        changed = [row for row in rows if not remove or row.get("split") == split_name]
        dataset_changes.put(store, dataset, [{**row, "split": None if remove else split_name} for row in changed])

    def list_dataset_versions(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        limit: int | None = None,
    ) -> Iterator[DatasetVersion]:
        """Yield the versions of a dataset, newest first."""
        store = Store()
        dataset = datasets.find_dataset(store, dataset_name, dataset_id)
        return islice(dataset_changes.versions_of(store, dataset), limit)

    @refusing(tag="versions have no tags; name a time, or the snapshot's id")
    def read_dataset_version(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: datetime | None = None,
        tag: str | None = None,
    ) -> DatasetVersion:
        """Return the version that was current at a time, by default the newest. Raises InputError if there was none."""
        store = Store()
        return dataset_changes.version_at(store, datasets.find_dataset(store, dataset_name, dataset_id), as_of)

    def diff_dataset_versions(
        self,
        dataset_id: Identity | None = None,
        *,
        dataset_name: str | None = None,
        from_version: str | datetime,
        to_version: str | datetime,
    ) -> DatasetDiffInfo:
        """Return which examples were added, removed and changed between two times."""
        store = Store()
        dataset = datasets.find_dataset(store, dataset_name, dataset_id)
        return dataset_changes.difference(store, dataset, from_version, to_version)

    @refusing(data_type=_ONLY_KV)
    def upload_csv(
        self,
        csv_file: str | tuple[str, io.BytesIO] | tuple[str, io.BytesIO, str],
        input_keys: Sequence[str],
        output_keys: Sequence[str],
        *,
        name: str | None = None,
        description: str | None = None,
        data_type: str | None = "kv",
    ) -> Dataset:
        """Make a dataset of a CSV file: a path, or a name and an open file. Cells are texts; an empty one is left out.

        The dataset's name is by default the file's. Raises InputError, and makes none, if the file cannot be read or
        lacks a column.
        """
        if isinstance(csv_file, str | Path):
            where, rows = str(csv_file), [row for _, row in read_rows(csv_file)]
        else:
            where, rows = csv_file[0], [row for _, row in READERS[".csv"](csv_file[1], csv_file[0])]
        return _made_of(name or stem(where), where, rows, input_keys, output_keys, description)

    @refusing(data_type=_ONLY_KV)
    def upload_dataframe(
        self,
        df: "pd.DataFrame",
        name: str,
        input_keys: Sequence[str],
        output_keys: Sequence[str],
        *,
        description: str | None = None,
        data_type: str | None = "kv",
    ) -> Dataset:
        """Make a dataset of a DataFrame, whose values keep their types. Raises InputError as `upload_csv`."""
        rows = [
            {str(key): plain(value, f"row {number}: {key}") for key, value in row.items()}
            for number, row in enumerate(df.to_dict(orient="records"), start=1)
        ]
        return _made_of(name, "data frame", rows, input_keys, output_keys, description)


def _updates(updates: Sequence[Any] | None, lists: Mapping[str, Sequence[Any] | None]) -> Iterable[Any]:
    """Return the updates, or those made of parallel lists. Raises InputError for lists of unequal length."""
    given = {name: values for name, values in lists.items() if values is not None}
    if unknown := given.keys() - COLUMNS.keys():
        raise InputError(f"update_examples: got {min(unknown)!r}, wanted only updates or {', '.join(COLUMNS)}")
    if updates is not None:
        return updates
    if "example_ids" not in given:
        raise InputError("update_examples: got neither updates nor example_ids, wanted one of them")
    for name, values in given.items():
        if len(values) != (wanted := len(given["example_ids"])):
            raise InputError(f"update_examples: {name}: got {len(values)}, wanted {wanted}, as many as example_ids")
    names = [COLUMNS[name] for name in given]
    return [dict(zip(names, values, strict=True)) for values in zip(*given.values(), strict=True)]


def _dataset_of(store: Store, name: str | None, identity: Identity | None, updates: Sequence[Fields]) -> Dataset:
    """Return the dataset of the examples that are to be updated."""
    if name is not None or identity is not None:
        return datasets.find_dataset(store, name, identity)
    if not updates:
        raise InputError("update_examples: got no updates, wanted at least one")
    found = {
        (datasets.find_dataset(store, None, of) if (of := update.get("dataset_id")) else _holding(store, update)).name
        for update in updates
    }
    if len(found) > 1:
        raise InputError(
            f"update_examples: got examples of the datasets {', '.join(sorted(found))}, wanted one dataset"
        )
    return datasets.find_dataset(store, found.pop(), None)


def _holding(store: Store, update: Fields) -> Dataset:
    if "id" not in update:
        raise InputError(f"update: got {short(update)}, wanted the id of an example")
    return dataset_changes.only_holding(store, update["id"])


def _made_of(
    name: str,
    where: str,
    rows: Sequence[Fields],
    input_keys: Sequence[str],
    output_keys: Sequence[str],
    description: str | None,
) -> Dataset:
    """Create a dataset from the columns of a table."""
    columns = dict.fromkeys(key for row in rows for key in row)
    if missing := [key for key in (*input_keys, *output_keys) if key not in columns]:
        raise InputError(f"{where}: no column {missing[0]!r}, wanted one of: {', '.join(columns) or 'none'}")
    examples = [
        {
            "inputs": {key: row[key] for key in input_keys if row.get(key) is not None},
            "outputs": {key: row[key] for key in output_keys if row.get(key) is not None},
        }
        for row in rows
    ]
    return datasets.create_filled(Store(), name, description, examples)
