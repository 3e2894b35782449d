"""The open batches of a store: which runs wait for them, and the interfaces of their providers."""

from collections.abc import Callable
from functools import cache

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.running import EvaluatorFactory
from evalflows.llm.batches import Batch, BatchService, runs_with_batches, service_of
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Ledger
from evalflows.specs.errors import NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.lookup import find_comparison as comparison_named
from evalflows.store.queries.lookup import find_experiments, is_comparison, run_groups
from evalflows.store.records import ComparisonSetRow, ExperimentRow
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow, evaluation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run with batches: its id, which resumptions share, its spec, and what it is called in messages."""

    id: str
    spec: AnySpec
    called: str
    batches: tuple[Batch, ...]

    def service_of(self, store: Store) -> Callable[[Batch], BatchService]:
        """Return what gives the interface of a batch. It raises CallError for a connection that has none any more, and
        InputError if its key is not set."""
        factory = EvaluatorFactory(self.spec, Ledger(store, self.id, are_made=False), Budget())

        @cache
        def of_connection(name: str) -> BatchService:
            return service_of(factory.complete(name).endpoint)

        return lambda batch: of_connection(batch.connection)


def waiting_runs(store: Store) -> list[WaitingRun]:
    """Return the runs of a store that have batches, of which some may have ended since they were looked at."""
    found = (_waiting(store, identity, batches) for identity, batches in runs_with_batches(store).items())
    return [run for run in found if run is not None]


def waiting_run(store: Store, reference: str) -> WaitingRun:
    """Return the run that waits for batches, by the id or name of an experiment, a run group, a comparison or a trace
    evaluation. Raise NotFoundError if there is none."""
    runs = {run.id: run for run in waiting_runs(store)}
    if evaluation_id(reference) in runs:
        return runs[evaluation_id(reference)]
    if is_comparison(store, reference):
        identities = [comparison_named(store, reference)]
    else:
        identities = run_groups(store, find_experiments(store, reference))
    for identity in identities:
        if identity in runs:
            return runs[identity]
    waiting = ", ".join(runs) or "none"
    raise NotFoundError(f"{reference!r} does not wait for a batch, wanted one of: {waiting}")


def _waiting(store: Store, identity: str, batches: list[Batch]) -> WaitingRun | None:
    """Return the run with this id; None if its rows were removed."""
    experiments = store.query("select experiment_id from source.experiments where run_group = ? limit 1", [identity])
    if experiments:
        row: ExperimentRow = store.read("experiments", experiments[0][0])[0]
        spec: AnySpec = experiment_spec(row)
        return WaitingRun(id=identity, spec=spec, called=f"experiment {spec.name!r}", batches=tuple(batches))
    comparisons: list[ComparisonSetRow] = store.read("comparison_sets", identity)
    if comparisons:
        spec = comparison_spec(comparisons[0])
        return WaitingRun(id=identity, spec=spec, called=f"comparison {spec.title!r}", batches=tuple(batches))
    watermarks: list[WatermarkRow] = store.read("watermarks", identity)
    if watermarks:
        spec = TraceEvaluationSpec.model_validate_json(max(watermarks, key=lambda row: row.recorded_at).spec)
        return WaitingRun(id=identity, spec=spec, called=f"trace evaluation {spec.name!r}", batches=tuple(batches))
    return None
