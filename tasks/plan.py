"""A plan: what a run of a spec would cost, and how many examples show what is wanted. Nothing is run or written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llm.connections import known
from specs.connection import ConnectionSpec, EndpointConnection
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from store.datasets import Loaded, load_dataset
from store.parquet import Store
from store.records import ExampleRow
from store.suite import load_expectations
from tasks.check import check_spec
from tasks.connections import settled_connections
from tasks.declared import with_metrics
from tasks.plan_calls import PlannedCalls, Planning, Total, calls_of_targets, total_of
from tasks.plan_judges import calls_of_judges
from tasks.plan_metrics import MetricPlan, metrics_to_plan, planned_metric
from tasks.plan_sizes import Present
from tasks.plan_spread import Place
from tasks.prompts import with_prompts
from tasks.start import described_evaluators


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run of a spec would cost, and what it would show."""

    spec: ExperimentSpec  # as it was asked for
    effect: float | None
    present: Present
    calls: tuple[PlannedCalls, ...]
    total: Total
    metrics: tuple[MetricPlan, ...]


def plan_of(spec: ExperimentSpec, effect: float | None, metrics: Sequence[str], power: float) -> Plan:
    """The plan of a spec, from what is in the store. Raises InputError for what cannot work; no key is needed."""
    store = Store()
    _check_wishes(spec, effect, power)
    whole, loaded = _settled(spec, store)
    names = metrics_to_plan(whole, metrics)
    planning, present = Planning(store, whole, loaded.taken), _present(whole, loaded.taken, power)
    lines = (*calls_of_targets(planning), *calls_of_judges(planning))
    place = _place(store, whole, loaded, clustered=present.n_clusters is not None)
    return Plan(
        spec=spec,
        effect=effect,
        present=present,
        calls=lines,
        total=total_of(lines),
        metrics=tuple(planned_metric(place, name, effect, present, loaded.taken, lines) for name in names),
    )


def _check_wishes(spec: ExperimentSpec, effect: float | None, power: float) -> None:
    if effect is not None and not 0 < effect < math.inf:
        raise InputError(f"effect: got {effect:g}, wanted a number above 0")
    lowest = (1 - spec.level) / 2
    if not lowest < power < 1:
        raise InputError(f"power: got {power:g}, wanted a number between {lowest:.3g} and 1")


def _settled(spec: ExperimentSpec, store: Store) -> tuple[ExperimentSpec, Loaded]:
    """The spec as a run would have it, checked in the same way, and its dataset, which is not frozen."""
    loaded = load_dataset(store, spec.dataset)
    load_expectations(spec.dataset.expectations)
    spec = with_metrics(settled_connections(with_prompts(spec)))
    every = {name: _keyless(connection) for name, connection in known(spec.connections).items()}
    spec = spec.model_copy(update={"connections": every})
    check_spec(spec, loaded.taken, store)
    return spec, loaded


def _keyless(connection: ConnectionSpec) -> ConnectionSpec:
    """Nothing is asked, so that nobody needs a key."""
    if not isinstance(connection, EndpointConnection):
        return connection
    return connection.model_copy(update={"api_key_env": None, "api_key_block": None})


def _present(spec: ExperimentSpec, examples: Sequence[ExampleRow], power: float) -> Present:
    is_clustered = any(one.cluster is not None for one in examples)
    clusters = {one.cluster or ("alone", one.example_id) for one in examples}
    return Present(
        n_examples=len(examples),
        n_clusters=len(clusters) if is_clustered else None,
        repetitions=spec.repetitions,
        level=spec.level,
        power=power,
    )


def _place(store: Store, spec: ExperimentSpec, loaded: Loaded, *, clustered: bool) -> Place:
    return Place(
        store=store,
        spec=spec,
        dataset_name=loaded.name,
        snapshot_id=loaded.every[0].snapshot_id,
        clustered=clustered,
        versions={name: one["version"] for name, one in described_evaluators(spec).items()},
    )
