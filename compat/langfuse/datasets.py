"""Langfuse's datasets: names whose versions are snapshots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.compat.langfuse import experiment
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.experiment import ExperimentResult
from evalflows.compat.langfuse.items import DatasetItem, as_row, dataset_item
from evalflows.compat.langsmith import dataset_changes, datasets
from evalflows.compat.langsmith.schemas import Dataset as Named
from evalflows.compat.refusal import refusing
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.snapshots import current_snapshot, load_snapshot, to_examples

ONE_RUN = "each call is an experiment of its own; `evalflows resume` continues an interrupted one"


@dataclass(slots=True, kw_only=True)
class DatasetClient:
    """A dataset, with its items as they were when it was fetched."""

    id: str
    name: str
    description: str | None = None
    metadata: Any = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    version: datetime | None = None
    items: list[DatasetItem] = field(default_factory=list)
    snapshot_id: str | None = None  # ours: of the items

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method("DatasetClient", name)

    @refusing(experiment_id=ONE_RUN)
    def run_experiment(
        self,
        *,
        name: str,
        run_name: str | None = None,
        description: str | None = None,
        task: Any,
        evaluators: Sequence[Any] = (),
        composite_evaluator: Any = None,
        run_evaluators: Sequence[Any] = (),
        max_concurrency: int = 50,
        metadata: Mapping[str, Any] | None = None,
        experiment_id: str | None = None,
    ) -> ExperimentResult:
        """Run a task on all items of the dataset: see `Langfuse.run_experiment`."""
        return experiment.run(
            name=name,
            run_name=run_name,
            description=description,
            data=self.items,
            task=task,
            evaluators=evaluators,
            composite_evaluator=composite_evaluator,
            run_evaluators=run_evaluators,
            max_concurrency=max_concurrency,
            metadata=metadata,
            snapshot=self.snapshot_id,
        )


def fetch(name: str, version: datetime | None) -> DatasetClient:
    """Return a dataset with its items, or with those of an earlier version. Raise InputError if it does not exist."""
    store = Store()
    found = datasets.find_dataset(store, name, None)
    client = _client(found)
    client.version = version
    client.snapshot_id = dataset_changes.version_at(store, found, version).snapshot_id
    client.items = [dataset_item(row, name) for row in load_snapshot(store, client.snapshot_id)]
    return client


def create(name: str, description: str | None, metadata: Any) -> DatasetClient:
    """Return a dataset of this name, which is created if there is none.

    Raise InputError if the dataset exists with another description or other metadata, which cannot be changed.
    """
    store = Store()
    if current_snapshot(store, name) is None:
        return _client(datasets.create(store, name, description, metadata))
    found = datasets.find_dataset(store, name, None)
    for kind, given in (("description", description), ("metadata", metadata)):
        if given is not None and given != (kept := getattr(found, kind)):
            raise InputError(f"create_dataset: {name!r} exists with the {kind} {kept!r:.60}, wanted the same, or none")
    return _client(found)


def put(name: str, item: Mapping[str, Any]) -> DatasetItem:
    """Add an item to a dataset; one with the id of another replaces it, and one with its content is the same item.

    Raise InputError if the dataset does not exist, or the item cannot be stored.
    """
    store = Store()
    found = datasets.find_dataset(store, name, None)
    row = as_row(item, "create_dataset_item")
    (example,) = to_examples([(1, row)], "create_dataset_item")
    dataset_changes.put(store, found, [row | {"id": example.example_id}])
    return dataset_item(example, name)


def _client(found: Named) -> DatasetClient:
    return DatasetClient(
        id=found.id,
        name=found.name,
        description=found.description,
        metadata=found.metadata,
        created_at=found.created_at,
        updated_at=found.modified_at,
    )
