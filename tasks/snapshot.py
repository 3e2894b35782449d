"""The dataset snapshot: what the run is about, frozen."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.dataset import DatasetSpec
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from store.jsonl import read_jsonl
from store.parquet import Store
from store.records import ExampleRow
from store.snapshots import current_snapshot, freeze, load_snapshot, to_examples
from tasks.check import check_spec


@task(cache_policy=NO_CACHE, persist_result=False)
def freeze_dataset(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec, checked whole, with its dataset frozen and named by its snapshot. See `freeze_checked`."""
    return freeze_checked(spec)


def freeze_checked(spec: ExperimentSpec) -> ExperimentSpec:
    """Check everything that a spec says, then freeze its dataset. Raises InputError, with nothing written."""
    store = Store()
    examples = load_examples(store, spec.dataset)
    check_spec(spec, examples)
    name, identity = dataset_name(spec.dataset), examples[0].snapshot_id
    if not identity:  # from a file or from rows: not frozen yet
        identity = freeze(store, examples, name=name, source=spec.dataset.path or "rows")
    return spec.model_copy(update={"dataset": DatasetSpec(name=name, snapshot=identity)})


def load_examples(store: Store, dataset: DatasetSpec) -> list[ExampleRow]:
    """The examples that a dataset spec stands for. Raises InputError."""
    if dataset.path is not None:
        return to_examples(read_jsonl(dataset.path), dataset.path)
    if dataset.rows is not None:
        return to_examples(enumerate(dataset.rows, start=1), "dataset row")
    identity = dataset.snapshot or current_snapshot(store, dataset.name or "")
    if identity is None:
        known = ", ".join(row[0] for row in store.query("select distinct name from source.dataset_versions order by 1"))
        raise InputError(f"dataset {dataset.name!r}: not in the store, wanted one of: {known or 'none is there yet'}")
    return load_snapshot(store, identity)


def dataset_name(dataset: DatasetSpec) -> str | None:
    return dataset.name or (Path(dataset.path).stem if dataset.path is not None else None)
