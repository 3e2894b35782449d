"""LangSmith's datasets, examples, runs and feedback as its client's methods: a dataset is a name whose versions are
snapshots; each change is a new one, and experiments keep theirs."""

import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalflows.compat.langsmith.conversion import dataset_id, example_of, to_stored
from evalflows.compat.langsmith.schemas import (
    Dataset,
    DatasetDiffInfo,
    DatasetVersion,
    Example,
    ExampleUpdate,
    Fields,
    Identity,
)
from evalflows.compat.refusal import refusing, refusing_unknown
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, NotFoundError, short
from evalflows.specs.moments import in_utc
from evalflows.specs.values import stored_row
from evalflows.store.dataset_versions import compare_examples, merge_examples
from evalflows.store.file_formats import read_rows, rows_of, stem
from evalflows.store.records import ExampleRow, derived_id, from_json
from evalflows.store.snapshots import KNOWN, current_snapshot, freeze, hide_dataset, load_snapshot, to_examples
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "evalflows.compat.langsmith"
NEW_COLUMNS = {
    "inputs": "inputs",
    "outputs": "outputs",
    "reference_outputs": "reference_outputs",
    "metadata": "metadata",
    "splits": "split",
    "ids": "id",
    "attachments": "attachments",
    "source_run_ids": "source_run_id",
}
"""The lists that `create_examples` takes, and the field of an example that each fills."""

_KEPT = """
with kept as (
    select * from source.dataset_versions qualify recorded_at > coalesce(
        max(recorded_at) filter (snapshot_id = '') over (partition by name), '-infinity'::timestamptz)
)
"""
"""The versions of datasets since their names were last free."""

_DATASETS = f"""{_KEPT}
select v.name, arg_max(v.description, v.recorded_at) as description, min(v.recorded_at) as created_at,
       max(v.recorded_at) as modified_at, arg_max(s.n_examples, v.recorded_at) as example_count,
       arg_max(v.metadata, v.recorded_at) as metadata
from kept v join source.snapshots s using (snapshot_id)
group by v.name order by created_at desc
"""

_VERSIONS = f"{_KEPT} select recorded_at, snapshot_id from kept where name = ? order by recorded_at desc"
_UPDATED = {field.name for field in fields(ExampleUpdate)}

_NO_SCHEMA = "check a dataset with expectations: docs/reference/specs.md"

_ONLY_KV = "examples are key-value mappings"
EXAMPLE_COLUMNS = {
    "example_ids": "id",
    "inputs": "inputs",
    "outputs": "outputs",
    "metadata": "metadata",
    "splits": "split",
    "attachments_operations": "attachments_operations",
    "attachments": "attachments",
}
"""The lists that `update_examples` takes, and the field of an update that each fills."""


def all_datasets(store: Store) -> list[Dataset]:
    """Return every named dataset, newest first."""
    names = ("name", "description", "created_at", "modified_at", "example_count")
    rows = store.query(_DATASETS)
    known = {row[0] for row in rows}
    return [
        Dataset(id=dataset_id(row[0]) or "", metadata=from_json(row[5]), **dict(zip(names, row[:5], strict=True)))
        for row in rows
        if row[0].rpartition("@")[0] not in known  # the tag of a version is no dataset of LangSmith's
    ]


class ConflictError(InputError):
    """A name is taken."""


def find_dataset(store: Store, name: str | None, identity: Identity | None) -> Dataset:
    """Return the dataset with this name or id. Raise InputError if it does not exist, or both or none are given."""
    if (name is None) == (identity is None):
        raise InputError("dataset: wanted exactly one of dataset_name and dataset_id")
    datasets = all_datasets(store)
    for dataset in datasets:
        if dataset.name == name or (identity is not None and dataset.id == str(identity)):
            return dataset
    known = ", ".join(dataset.name for dataset in datasets) or "none yet"
    raise NotFoundError(f"dataset {name or str(identity)!r}: not in the store, wanted one of: {known}")


def create(
    store: Store,
    name: str,
    description: str | None,
    metadata: Mapping[str, Any] | None = None,
    rows: Sequence[Fields] | None = None,
) -> Dataset:
    """Create a dataset, empty or with these examples, as one version.

    Raise InputError, and creates none, if the name is taken, a row is invalid, or there are no rows in `rows`.
    """
    if current_snapshot(store, name) is not None:
        raise ConflictError(f"dataset {name!r}: already in the store, wanted another name, or create_examples")
    examples = [] if rows is None else _with_own_ids(name, rows, f"example of dataset {name!r}")
    freeze(store, examples, name=name, source=SOURCE, description=description, metadata=metadata)
    return find_dataset(store, name, None)


def _with_own_ids(dataset: str, rows: Sequence[Fields], where: str) -> Sequence[ExampleRow]:
    """Return rows as examples. The id of one that names none is of its content in this dataset: no other has it."""
    examples = to_examples(enumerate(rows, start=1), where) if rows else []
    own = [
        row if "id" in row else {**row, "id": derived_id(dataset, example.example_id)}
        for row, example in zip(rows, examples, strict=True)
    ]
    return to_examples(enumerate(own, start=1), where) if rows else []


def add(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> list[str]:
    """Add rows to a dataset, except examples that it already has. Return the rows' ids.

    Raise InputError if a row is not an example, or has the id of an existing example with other content.
    """
    where = f"example of dataset {dataset.name!r}"
    new = _with_own_ids(dataset.name, rows, where)
    old = _current(store, dataset)
    merged = merge_examples(old, new, where)
    if len(merged) > len(old):
        _freeze(store, dataset, merged)
    return [example.example_id for example in new]


def examples_of(store: Store, dataset: Dataset, snapshot: str | None = None) -> list[Example]:
    """Return the examples of a dataset, in order; by default of its current snapshot."""
    rows = load_snapshot(store, snapshot or current_snapshot(store, dataset.name) or "")
    return [example_of(row, dataset.id) for row in rows]


def as_row(example: object, *, may_read_files: bool = False) -> Fields:
    """Convert an example in any of LangSmith's shapes to a row. Raise InputError for anything else."""
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


def _rows_of(
    where: str,
    whole: str,
    given: Iterable[Any] | None,
    first: str,
    fields: Mapping[str, str],
    lists: Mapping[str, Sequence[Any]],
) -> Iterable[Any]:
    """Return what is given whole, or the rows of parallel lists, as many as those of the first list.

    `fields` has the field of each list. Raise InputError for other lists, without any, and for unequal lengths.
    """
    if unknown := lists.keys() - fields.keys():
        raise InputError(f"{where}got {min(unknown)!r}, wanted only {whole} or {', '.join(fields)}")
    if given is not None:
        return given
    if first not in lists:
        raise InputError(f"{where}got neither {whole} nor {first}, wanted one of them")
    for name, values in lists.items():
        if len(values) != (wanted := len(lists[first])):
            raise InputError(f"{where}{name}: got {len(values)}, wanted {wanted}, as many as {first}")
    names = [fields[name] for name in lists]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists.values(), strict=True)]


_NOTHING_FOUND = "No examples found in the dataset."
"""What programs look for in the error."""


class NoExamplesError(InputError, ValueError):
    """There is nothing to evaluate; a ValueError too, as in LangSmith."""


def as_data(store: Store, data: Any) -> DatasetSpec:
    """Convert the `data` of `evaluate` (a dataset, its name or id, or examples) to a spec. Raise InputError."""
    if data is None:
        raise NoExamplesError("evaluate: data: got None, wanted a dataset, its name or id, or examples")
    if isinstance(data, str | uuid.UUID | Dataset):
        return _whole_dataset(store, data.name if isinstance(data, Dataset) else data)
    examples = list(data)
    origins = {getattr(example, "dataset_id", None) for example in examples}
    for dataset in all_datasets(store) if len(origins) == 1 and None not in origins else ():
        if dataset.id in origins and examples == examples_of(store, dataset):
            return DatasetSpec(name=dataset.name)  # the whole dataset: the experiment refers to it by name
    if not examples:
        said = "Must specify 'data'." if isinstance(data, list) else _NOTHING_FOUND
        raise NoExamplesError(f"evaluate: data: got no examples, wanted at least one. {said}")
    return DatasetSpec(rows=[as_row(example) for example in examples])


def _whole_dataset(store: Store, reference: Identity) -> DatasetSpec:
    named = next((d for d in all_datasets(store) if str(reference) in (d.name, d.id)), None)
    dataset = named or find_dataset(store, str(reference), None)
    if not dataset.example_count:
        said = f"dataset {dataset.name!r}: has no examples yet, wanted some from create_examples"
        raise NoExamplesError(f"{said}. {_NOTHING_FOUND}")
    return DatasetSpec(name=dataset.name)


_HOLDING = """
select v.name from (
    select name, arg_max(snapshot_id, recorded_at) as snapshot_id, max(recorded_at) as recorded_at
    from source.dataset_versions group by name
) v join source.examples e using (snapshot_id) where e.example_id = ? order by v.recorded_at desc
"""


def holding(store: Store, example: Identity) -> list[Dataset]:
    """Return the datasets that have this example now, the last changed first. Raise InputError if none has."""
    known = {dataset.name: dataset for dataset in all_datasets(store)}  # without tags of versions
    found = [known[name] for (name, *_) in store.query(_HOLDING, [str(example)]) if name in known]
    if not found:
        raise InputError(f"example {str(example)!r}: in no dataset's current version")
    return found


def only_holding(store: Store, example: Identity) -> Dataset:
    """Return the dataset that has this example. Raise InputError if none has, or several do."""
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


def tag_of(dataset: str, tag: str) -> str:
    """Return the dataset that holds the version with a tag, under a name of its own."""
    return f"{dataset}@{tag}"


def version_at(store: Store, dataset: Dataset, as_of: datetime | str | None) -> DatasetVersion:
    """Return the version that was current at a time, in UTC if it names no zone; None and "latest" mean now.

    A text is a tag, or a time in ISO 8601. Raise InputError for a time before the first version, and an unknown tag.
    """
    versions = versions_of(store, dataset)
    if as_of is None or as_of == "latest":
        return versions[0]
    if isinstance(as_of, str):
        tagged = current_snapshot(store, tag_of(dataset.name, as_of))
        if found := next((version for version in versions if version.snapshot_id == tagged), None):
            return replace(found, tags=[as_of])
        try:
            as_of = datetime.fromisoformat(as_of)
        except ValueError:
            raise InputError(f"as_of: got {short(as_of)}, wanted a time, 'latest', or a tag of a version") from None
    moment = in_utc(as_of)
    version = next((version for version in versions if version.as_of <= moment), None)
    if version is None:
        raise InputError(f"as_of: got {moment}, wanted a time after {versions[-1].as_of}, when {dataset.name!r} began")
    return version


def put(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    """Add rows, which have ids, to a dataset; one with the id of an existing example replaces it.

    Raise InputError if a row is not an example.
    """
    new = {str(row["id"]): row for row in rows}
    old = [as_fields(row) for row in _current(store, dataset)]
    known = {row["id"] for row in old}
    _freeze_rows(
        store, dataset, [*(new.get(row["id"], row) for row in old), *(new[key] for key in new if key not in known)]
    )


def as_update(changes: object) -> Fields:
    """Convert an update in any of LangSmith's shapes to its fields that are not None. Raise InputError."""
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


def _freeze_rows(store: Store, dataset: Dataset, rows: Sequence[Fields]) -> None:
    where = f"example of dataset {dataset.name!r}"
    _freeze(store, dataset, to_examples(enumerate(rows, start=1), where) if rows else [])


def _freeze(store: Store, dataset: Dataset, examples: Sequence[ExampleRow]) -> None:
    description, metadata = dataset.description, dataset.metadata
    freeze(store, examples, name=dataset.name, source=SOURCE, description=description, metadata=metadata)


_NO_RUNS = "create examples from inputs and outputs, not from runs"


@refusing_unknown
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
        """Create a dataset without examples. Raise InputError if the name is taken."""
        return create(Store(), dataset_name, description, metadata)

    def has_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> bool:
        if (dataset_name is None) == (dataset_id is None):
            raise InputError("has_dataset: wanted exactly one of dataset_name and dataset_id")
        return any(d.name == dataset_name or d.id == str(dataset_id) for d in all_datasets(Store()))

    def read_dataset(self, *, dataset_name: str | None = None, dataset_id: Identity | None = None) -> Dataset:
        """Return a dataset. Raise InputError if it does not exist."""
        return find_dataset(Store(), dataset_name, dataset_id)

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
            for dataset in all_datasets(Store())
            if (ids is None or dataset.id in ids)
            and data_type in (None, dataset.data_type)
            and dataset_name in (None, dataset.name)
            and (dataset_name_contains or "") in dataset.name
            and _has(dataset.metadata, metadata)
        )
        return islice(matching, limit)

    def delete_dataset(self, *, dataset_id: Identity | None = None, dataset_name: str | None = None) -> None:
        """Hide a dataset and free its name. Its versions stay, as do the experiments on them.

        Raise InputError if it does not exist.
        """
        hide_dataset(Store(), self.read_dataset(dataset_id=dataset_id, dataset_name=dataset_name).name, SOURCE)

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
        """Add one example to a dataset; `create_examples` is faster for many. Raise InputError as it does."""
        fields = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "metadata": metadata}
        row = as_row({**fields, "split": split, "id": example_id, "attachments": attachments})
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        (identity,) = add(Store(), dataset, [row])
        return next(example for example in examples_of(Store(), dataset) if example.id == identity)

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

        Returns their count and ids. Existing examples are not added again. Raise InputError, and adds none, if an
        example is invalid or has the id of an existing example with other content.
        """
        dataset = self.read_dataset(dataset_name=dataset_name, dataset_id=dataset_id)
        lists = {name: values for name, values in kwargs.items() if values is not None}
        given = _rows_of("create_examples: ", "examples", examples, "inputs", NEW_COLUMNS, lists)
        if examples is not None and lists:
            raise InputError(f"create_examples: got both examples and {min(lists)}, wanted one of them")
        rows = [as_row(row, may_read_files=dangerously_allow_filesystem) for row in given]
        identities = add(Store(), dataset, rows)
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
        snapshot = version_at(store, dataset, as_of).snapshot_id
        ids = None if example_ids is None else {str(identity) for identity in example_ids}
        matching = (
            example
            for example in examples_of(store, dataset, snapshot)
            if (ids is None or example.id in ids)
            and (splits is None or example.split in splits)
            and _has(example.metadata, metadata)
        )
        return islice(matching, offset, None if limit is None else offset + limit)


def _has(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> bool:
    return (wanted or {}).items() <= (metadata or {}).items()


@refusing_unknown
class ExampleMethods:
    """A change makes a new version of a dataset; experiments keep the version that they ran on."""

    def read_example(self, example_id: Identity, *, as_of: datetime | None = None) -> Example:
        """Return an example, by default as it is now. Raise InputError if no dataset has it."""
        store = Store()
        dataset = holding(store, example_id)[0]
        snapshot = version_at(store, dataset, as_of).snapshot_id
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
        """Replace the given fields of an example, which keeps its id. Raise InputError as `update_examples`."""
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

        Returns their count and ids. Raise InputError, and changes none, if an example does not exist or an update is
        invalid; also if the examples are of several datasets.
        """
        lists = {name: values for name, values in kwargs.items() if values is not None}
        given = _rows_of("update_examples: ", "updates", updates, "example_ids", EXAMPLE_COLUMNS, lists)
        store, changes = Store(), [as_update(update) for update in given]
        dataset = _dataset_of(store, dataset_name, dataset_id, changes)
        old = {row.example_id: as_fields(row) for row in _current(store, dataset)}
        rows = []
        for number, changed in enumerate(changes, start=1):
            identity = str(changed.get("id"))
            if identity not in old:
                raise InputError(f"update {number}: example {identity!r}: not in the dataset {dataset.name!r}")
            rows.append(_updated(old[identity], changed, dangerously_allow_filesystem))
        put(store, dataset, rows)
        ids = [row["id"] for row in rows]
        return {"message": f"{len(ids)} examples updated", "count": len(ids), "example_ids": ids}

    def delete_example(self, example_id: Identity) -> None:
        """Leave an example out of the dataset's next version. Raise InputError if no dataset, or several, have it."""
        self.delete_examples([example_id])

    @refusing(hard_delete="earlier versions, on which experiments ran, keep the example")
    def delete_examples(self, example_ids: Sequence[Identity], *, hard_delete: bool = False) -> None:
        """Leave examples out of the dataset's next version. Raise InputError as `delete_example`."""
        store = Store()
        of_dataset: dict[str, set[str]] = {}
        for example in example_ids:
            of_dataset.setdefault(only_holding(store, example).name, set()).add(str(example))
        for name, removed in of_dataset.items():
            dataset = find_dataset(store, name, None)
            rows = [as_fields(row) for row in _current(store, dataset) if row.example_id not in removed]
            _freeze_rows(store, dataset, rows)

    def list_dataset_splits(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: str | datetime | None = None,
    ) -> list[str]:
        """Return the names of a dataset's splits."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        examples = load_snapshot(store, version_at(store, dataset, as_of).snapshot_id)
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
        dataset = find_dataset(store, dataset_name, dataset_id)
        snapshot = version_at(store, dataset, None).snapshot_id
        rows = [as_fields(row) for row in load_snapshot(store, snapshot) if row.example_id in wanted]
        if unknown := wanted - {row["id"] for row in rows}:
            raise InputError(f"example {min(unknown)!r}: not in the dataset {dataset.name!r}")
        changed = [row for row in rows if not remove or row.get("split") == split_name]
        put(store, dataset, [{**row, "split": None if remove else split_name} for row in changed])

    def list_dataset_versions(
        self, *, dataset_id: Identity | None = None, dataset_name: str | None = None, limit: int | None = None
    ) -> Iterator[DatasetVersion]:
        """Yield the versions of a dataset, newest first."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        return islice(versions_of(store, dataset), limit)

    def update_dataset_tag(
        self, *, dataset_id: Identity | None = None, dataset_name: str | None = None, as_of: datetime | str, tag: str
    ) -> None:
        """Give the version of a time a tag, which an earlier one loses: a dataset `NAME@TAG` of its own, here."""
        store = Store()
        dataset = find_dataset(store, dataset_name, dataset_id)
        rows = load_snapshot(store, version_at(store, dataset, as_of).snapshot_id)
        freeze(store, rows, name=tag_of(dataset.name, tag), source=SOURCE, description=dataset.description)

    def read_dataset_version(
        self,
        *,
        dataset_id: Identity | None = None,
        dataset_name: str | None = None,
        as_of: datetime | None = None,
        tag: str | None = None,
    ) -> DatasetVersion:
        """Return the version that was current at a time, or has a tag; by default the newest.

        Raise InputError if there is none.
        """
        store = Store()
        return version_at(store, find_dataset(store, dataset_name, dataset_id), tag or as_of)

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
        dataset = find_dataset(store, dataset_name, dataset_id)
        versions = (version_at(store, dataset, as_of) for as_of in (from_version, to_version))
        old, new = (load_snapshot(store, version.snapshot_id) for version in versions)
        found = compare_examples(old, new)
        return DatasetDiffInfo(
            examples_modified=found.changed, examples_added=found.added, examples_removed=found.removed
        )

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

        The dataset's name is by default the file's. Raise InputError, and makes none, if the file cannot be read or
        lacks a column.
        """
        if isinstance(csv_file, str | Path):
            where, rows = str(csv_file), [row for _, row in read_rows(csv_file)]
        else:
            where, rows = csv_file[0], [row for _, row in rows_of(csv_file[1], ".csv", csv_file[0])]
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
        """Make a dataset of a DataFrame, whose values keep their types. Raise InputError as `upload_csv`."""
        rows = [stored_row(row, f"row {number}") for number, row in enumerate(df.to_dict(orient="records"), start=1)]
        return _made_of(name, "data frame", rows, input_keys, output_keys, description)


def _dataset_of(store: Store, name: str | None, identity: Identity | None, updates: Sequence[Fields]) -> Dataset:
    if name is not None or identity is not None:
        return find_dataset(store, name, identity)
    if not updates:
        raise InputError("update_examples: got no updates, wanted at least one")
    found = {
        (find_dataset(store, None, of) if (of := update.get("dataset_id")) else _holding(store, update)).name
        for update in updates
    }
    if len(found) > 1:
        raise InputError(
            f"update_examples: got examples of the datasets {', '.join(sorted(found))}, wanted one dataset"
        )
    return find_dataset(store, found.pop(), None)


def _holding(store: Store, update: Fields) -> Dataset:
    if "id" not in update:
        raise InputError(f"update: got {short(update)}, wanted the id of an example")
    return only_holding(store, update["id"])


def _made_of(
    name: str,
    where: str,
    rows: Sequence[Fields],
    input_keys: Sequence[str],
    output_keys: Sequence[str],
    description: str | None,
) -> Dataset:
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
    return create(Store(), name, description, rows=examples)
