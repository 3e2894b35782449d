"""Plan a run: its cost, and the sample sizes for the target effects. Nothing is run or stored."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evalflows.analysis.human_labels.trace_datasets import loaded_dataset
from evalflows.analysis.planning.judge_calls import calls_of_judges
from evalflows.analysis.planning.metrics import MetricPlan, metrics_to_plan, planned_metric
from evalflows.analysis.planning.sample_sizes import CurrentDesign
from evalflows.analysis.planning.target_calls import PlanInputs, PlannedCalls, Total, calls_of_targets, total_of
from evalflows.analysis.planning.variance import HistoryQuery
from evalflows.execution.preflight.check_spec import check_spec
from evalflows.execution.prepared import PreparedExperiment, prepare_experiment
from evalflows.llm.connections import known
from evalflows.specs.connection import ConnectionSpec, EndpointConnection
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.ingest.datasets import Loaded
from evalflows.store.ingest.suite import load_expectations
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cost of a run, and the effects it could detect."""

    spec: ExperimentSpec  # as requested
    effect: float | None
    design: CurrentDesign
    calls: tuple[PlannedCalls, ...]
    total: Total
    metrics: tuple[MetricPlan, ...]


def plan_experiment(spec: ExperimentSpec, effect: float | None, metrics: Sequence[str], power: float) -> Plan:
    """Plan a spec from the history in the store; no key is needed. Raises InputError for an invalid request."""
    store = Store()
    _check_request(spec, effect, power)
    prepared, loaded = _prepared(spec, store)
    names = metrics_to_plan(prepared, metrics)
    inputs, design = (
        PlanInputs(store, prepared, loaded.selected),
        _current_design(prepared.spec, loaded.selected, power),
    )
    lines = (*calls_of_targets(inputs), *calls_of_judges(inputs))
    history = _history_query(store, prepared, loaded, is_clustered=design.n_clusters is not None)
    return Plan(
        spec=spec,
        effect=effect,
        design=design,
        calls=lines,
        total=total_of(lines),
        metrics=tuple(planned_metric(history, name, effect, design, loaded.selected, lines) for name in names),
    )


def _check_request(spec: ExperimentSpec, effect: float | None, power: float) -> None:
    if effect is not None and not 0 < effect < math.inf:
        raise InputError(f"effect: got {effect:g}, wanted a number above 0")
    lowest = (1 - spec.confidence_level) / 2
    if not lowest < power < 1:
        raise InputError(f"power: got {power:g}, wanted a number between {lowest:.3g} and 1")


def _prepared(spec: ExperimentSpec, store: Store) -> tuple[PreparedExperiment, Loaded]:
    """Prepare and check the spec as for a run, and load its dataset without freezing it."""
    loaded = loaded_dataset(store, spec.dataset)
    load_expectations(spec.dataset.expectations)
    prepared = prepare_experiment(spec)
    connections = {name: _keyless(connection) for name, connection in known(prepared.spec.connections).items()}
    prepared = replace(prepared, spec=prepared.spec.model_copy(update={"connections": connections}))
    check_spec(prepared, loaded.selected, store)
    return prepared, loaded


def _keyless(connection: ConnectionSpec) -> ConnectionSpec:
    """The connection without its key: a plan makes no calls."""
    if not isinstance(connection, EndpointConnection):
        return connection
    return connection.model_copy(update={"api_key_env": None, "api_key_block": None})


def _current_design(spec: ExperimentSpec, examples: Sequence[ExampleRow], power: float) -> CurrentDesign:
    is_clustered = any(example.cluster is not None for example in examples)
    clusters = {example.cluster or ("alone", example.example_id) for example in examples}
    return CurrentDesign(
        n_examples=len(examples),
        n_clusters=len(clusters) if is_clustered else None,
        repetitions=spec.repetitions,
        confidence_level=spec.confidence_level,
        power=power,
    )


def _history_query(store: Store, prepared: PreparedExperiment, loaded: Loaded, *, is_clustered: bool) -> HistoryQuery:
    return HistoryQuery(
        store=store,
        prepared=prepared,
        dataset_name=loaded.name,
        snapshot_id=loaded.examples[0].snapshot_id,
        is_clustered=is_clustered,
    )
