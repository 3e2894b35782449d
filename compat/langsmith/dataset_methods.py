"""The dataset methods of LangSmith's client."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from evalflows.compat.langsmith import dataset_changes, datasets
from evalflows.compat.langsmith.schemas import Dataset, Example, Fields, Identity
from evalflows.compat.refusal import refusing
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store

_NO_RUNS = "create examples from inputs and outputs, not from runs"
_NO_SCHEMA = "check a dataset with expectations: docs/specs.md"


class DatasetMethods:
    """A dataset is a name for a snapshot, its current version."""

    @refusing(
        data_type="examples are key-value mappings",
        inputs_schema=_NO_SCHEMA,
        outputs_schema=_NO_SCHEMA,
        transformations="examples are stored unchanged",
    )
    def create_dataset(
        self,
        dataset_name: str,
        *,
        description: str | None = None,
        data_type: str = "kv",
        inputs_schema: Fields | None = None,
        outputs_schema: Fields | None = None,
        transformations: Sequence[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Create a dataset without examples. Raises InputError if the name is taken."""
        return datasets.create(Store(), dataset_name, description, metadata)

    def has_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> bool:
        if (dataset_name is None) == (dataset_id is None):
            raise InputError("has_dataset: wanted exactly one of dataset_name and dataset_id")
        return any(d.name == dataset_name or d.id == str(dataset_id) for d in datasets.all_datasets(Store()))

    def read_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> Dataset:
        """Return a dataset. Raises InputError if it does not exist."""
        return datasets.find_dataset(Store(), dataset_name, dataset_id)

    def list_datasets(
        self,
        *,
        dataset_ids: Sequence[Identity] | None = None,
        data_type: str | None = None,
        dataset_name: str | None = None,
        dataset_name_contains: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[Dataset]:
        """Yield the datasets that match every given filter, newest first."""
        ids = None if dataset_ids is None else {str(identity) for identity in dataset_ids}
        matching = (
            dataset
            for dataset in datasets.all_datasets(Store())
            if (ids is None or dataset.id in ids)
            and data_type in (None, dataset.data_type)
            and dataset_name in (None, dataset.name)
            and (dataset_name_contains or "") in dataset.name
            and _has(dataset.metadata, metadata)
        )
        return islice(matching, limit)

    def delete_dataset(self, *, dataset_id: Identity | None = None, dataset_name: str | None = None) -> None:
        """Raise InputError: datasets, which experiments depend on, are never removed."""
        name = self.read_dataset(dataset_id=dataset_id, dataset_name=dataset_name).name
        raise InputError(
            f"delete_dataset: dataset {name!r}: cannot be deleted, wanted a new dataset under another name"
        )

    @refusing(
        created_at="an example's time is when it is added",
        source_run_id=_NO_RUNS,
        use_source_run_io=_NO_RUNS,
        use_source_run_attachments=_NO_RUNS,
    )
    def create_example(
        self,
        inputs: Mapping[str, Any] | None = None,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        created_at: datetime | None = None,
        reference_outputs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        split: str | Sequence[str] | None = None,
        example_id: Identity | None = None,
        source_run_id: Identity | None = None,
        use_source_run_io: bool = False,
        use_source_run_attachments: Sequence[str] | None = None,
        attachments: Mapping[str, Any] | None = None,
        *,
        outputs: Mapping[str, Any] | None = None,
    ) -> Example:
        """Add one example to a dataset; `create_examples` is faster for many. Raises InputError as it does."""
        fields = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}
        row = datasets.as_row({**fields, "split": split, "id": example_id, "attachments": attachments})
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        (identity,) = datasets.add(Store(), dataset, [row])
        return next(example for example in datasets.examples_of(Store(), dataset) if example.id == identity)

    def create_examples(
        self,
        *,
        dataset_name: str | None = None,
        dataset_id: Identity | None = None,
        examples: Iterable[Any] | None = None,
        dangerously_allow_filesystem: bool = False,
        max_concurrency: int = 1,
        **kwargs: Sequence[Any] | None,
    ) -> Fields:
        """Add examples to a dataset: `examples`, or the lists inputs, outputs, metadata, splits, ids and attachments.

        With `dangerously_allow_filesystem`, attachments may be paths, which are read. `max_concurrency` has no effect:
        all are written at once.

        Returns their count and ids. Existing examples are not added again. Raises InputError, and adds none, if an
        example is invalid or has the id of an existing example with other content.
        """
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        rows = datasets.as_rows(examples, kwargs, may_read_files=dangerously_allow_filesystem)
        identities = datasets.add(Store(), dataset, rows)
        return {"example_ids": identities, "count": len(identities)}

    @refusing(filter="filter the returned examples, or query the store with SQL")
    def list_examples(
        self,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        example_ids: Sequence[Identity] | None = None,
        as_of: datetime | str | None = None,
        splits: Sequence[str] | None = None,
        inline_s3_urls: bool = True,
        *,
        offset: int = 0,
        limit: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        filter: str | None = None,  # noqa: A002
        include_attachments: bool = False,
    ) -> Iterator[Example]:
        """Yield a dataset's examples that match every given filter, in order; `as_of` a time, those of that version.

        Attachments are always included.
        """
        store, dataset = Store(), self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        snapshot = dataset_changes.version_at(store, dataset, as_of).snapshot_id
        ids = None if example_ids is None else {str(identity) for identity in example_ids}
        matching = (
            example
            for example in datasets.examples_of(store, dataset, snapshot)
            if (ids is None or example.id in ids)
            and (splits is None or example.split in splits)
            and _has(example.metadata, metadata)
        )
        return islice(matching, offset, None if limit is None else offset + limit)


def _has(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> bool:
    return (wanted or {}).items() <= (metadata or {}).items()
