"""Freeze the dataset: check the spec, and store the rows as a snapshot."""

from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.gates.production import with_fixed_windows
from evalflows.analysis.human_labels.trace_datasets import loaded_dataset
from evalflows.execution import quick_processes
from evalflows.execution.data_checks.process import begin_checks
from evalflows.execution.data_checks.request import CheckRequest
from evalflows.execution.preflight.check_spec import check_spec
from evalflows.execution.prepared import prepare_experiment, prepared_experiments
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import RecordedTarget, TargetSpec
from evalflows.store.ingest.datasets import Loaded
from evalflows.store.ingest.suite import load_expectations
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments


@task(cache_policy=NO_CACHE, persist_result=False)
def freeze_dataset(spec: ExperimentSpec) -> ExperimentSpec:
    """Check the spec and freeze its dataset, unless this process has just done so before starting the flow."""
    return spec if prepared_experiments.has(spec) else check_and_freeze(spec)


def check_and_freeze(spec: ExperimentSpec) -> ExperimentSpec:
    """Check the whole spec, resolve its references, and freeze its dataset. Raise InputError, with nothing written.

    Within `checks_end_here`, Great Expectations begins to check the snapshot, in another process.
    In the returned spec the dataset is a snapshot, windows of production have ends, expectations are a list, prompts
    are texts, other experiments are ids, and shared connections are included.
    """
    store = Store()
    loaded = loaded_dataset(store, spec.dataset)
    expectations = load_expectations(spec.dataset.expectations)
    targets = [_resolved(target, store) for target in spec.targets]
    prepared = prepare_experiment(with_fixed_windows(spec.model_copy(update={"targets": targets})))
    if quick_processes.pays(prepared, len(loaded.selected)):  # they import what they need meanwhile
        quick_processes.begin(prepared.spec.task_runner.processes)
    with quick_processes.ended_by_errors():
        check_spec(prepared, loaded.selected, store)
    dataset = _frozen(spec.dataset, loaded, store).model_copy(update={"expectations": expectations or None})
    prepared = replace(prepared, spec=prepared.spec.model_copy(update={"dataset": dataset}))
    prepared_experiments.keep(prepared)
    begin_checks(store, CheckRequest.of(store, dataset))
    return prepared.spec


def _frozen(dataset: DatasetSpec, loaded: Loaded, store: Store) -> DatasetSpec:
    """Return the dataset as a snapshot of the selected rows; splits and sample are kept for information."""
    return DatasetSpec(
        name=loaded.name,
        snapshot=loaded.keep(store),
        splits=dataset.splits,
        sample=dataset.sample,
        seed=dataset.seed,
    )


def _resolved(target: TargetSpec, store: Store) -> TargetSpec:
    if not isinstance(target, RecordedTarget) or target.experiment is None:
        return target
    (identity,) = find_experiments(store, target.experiment, just_one=True)
    return target.model_copy(update={"experiment": identity})
