"""The dataset snapshot: what the run is about, frozen."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.dataset import DatasetSpec
from specs.experiment import ExperimentSpec
from specs.target import RecordedTarget, TargetSpec
from store.datasets import Loaded, load_dataset
from store.lookup import find_experiments
from store.parquet import Store
from store.suite import load_expectations
from tasks.check import check_spec
from tasks.connections import settled_connections
from tasks.declared import with_metrics
from tasks.prompts import with_prompts

_last_checked: tuple[str, ExperimentSpec] | None = None


@task(cache_policy=NO_CACHE, persist_result=False)
def freeze_dataset(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec, checked whole, with its dataset frozen and named by its snapshot. See `freeze_checked`.

    What this process has just frozen and checked, on its way to the flow, it does not read and check again.
    """
    return spec if _last_checked == (Store().layout.root, spec) else freeze_checked(spec)


def freeze_checked(spec: ExperimentSpec) -> ExperimentSpec:
    """Check everything that a spec says, then freeze its dataset. Raises InputError, with nothing written.

    What it says of files and of names that move is settled: the dataset is a snapshot, a suite of expectations is
    their list, a prompt is its text, another experiment is its id, a shared connection stands in the spec.
    """
    store = Store()
    loaded = load_dataset(store, spec.dataset)
    expectations = load_expectations(spec.dataset.expectations)
    spec = with_prompts(spec.model_copy(update={"targets": [_settled(target, store) for target in spec.targets]}))
    spec = with_metrics(settled_connections(spec))
    check_spec(spec, loaded.taken, store)
    dataset = _frozen(spec.dataset, loaded, store).model_copy(update={"expectations": expectations or None})
    global _last_checked
    _last_checked = store.layout.root, spec.model_copy(update={"dataset": dataset})
    return _last_checked[1]


def _frozen(dataset: DatasetSpec, loaded: Loaded, store: Store) -> DatasetSpec:
    """The splits and the sample stay, to be seen; what was drawn from the snapshot is all of what was kept."""
    return DatasetSpec(
        name=loaded.name,
        snapshot=loaded.keep(store),
        splits=dataset.splits,
        sample=dataset.sample,
        seed=dataset.seed,
    )


def _settled(target: TargetSpec, store: Store) -> TargetSpec:
    if not isinstance(target, RecordedTarget) or target.experiment is None:
        return target
    (identity,) = find_experiments(store, target.experiment, just_one=True)
    return target.model_copy(update={"experiment": identity})
