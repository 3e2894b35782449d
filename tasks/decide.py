"""Gate decisions: evaluate each gate of a spec on the stored results."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.gates.baselines import baseline_row
from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.reports.decisions import decisions_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.parquet import Store
from evalflows.store.records import DecisionRow, ExperimentRow, after
from evalflows.tasks.combine import combine_scores
from evalflows.tasks.start_columns import flow_run_id


@task(cache_policy=NO_CACHE, persist_result=False)
def decide(spec: ExperimentSpec, rows: list[ExperimentRow]) -> list[str]:
    """Publish the decision of every gate on every candidate of a run group, and return the decision ids.

    The same evidence gives the same decision id, stored once. Decisions on other evidence are kept.
    """
    store = Store()
    return [keep(store, evaluation, flow_run_id()) for evaluation in _evaluations(store, spec, rows)]


@task(cache_policy=NO_CACHE, persist_result=False)
def latest_decisions(spec: ExperimentSpec, experiments: list[str]) -> list[str]:
    """Return the ids of the latest decision of each gate on each candidate among these experiments."""
    store = Store()
    rows = [store.read("experiments", identity)[0] for identity in experiments]
    latest = {(row.gate, row.candidate_experiment_id): row.decision_id for row in decisions_of(store, experiments)}
    return [latest[gate.name, row.experiment_id] for gate, row in _candidates(spec, rows)]


def _evaluations(store: Store, spec: ExperimentSpec, started: list[ExperimentRow]) -> Iterator[GateEvaluation]:
    rows = [store.read("experiments", row.experiment_id)[0] for row in started]  # as they are stored now
    reader = MetricReader(store)
    for gate, candidate in _candidates(spec, rows):
        baseline = baseline_row(store, spec, gate, rows)
        pair = ExperimentPair(reader=reader, spec=spec, candidate=candidate, baseline=baseline)
        yield GateEvaluation(gate=gate, pair=pair)


def _candidates(spec: ExperimentSpec, rows: list[ExperimentRow]) -> Iterator[tuple[GateSpec, ExperimentRow]]:
    """Yield each gate with each candidate experiment that it decides on."""
    by_target = {row.target: row for row in rows}
    for gate in spec.gates:
        yield from ((gate, by_target[name]) for name in spec.candidates(gate) if name in by_target)


def keep(store: Store, evaluation: GateEvaluation, flow_run: str | None) -> str:
    """Publish a decision with its verdicts, and return its id. Repeating a decision only updates its time."""
    row = evaluation.decision(flow_run)
    decided_at = after(_newest_decision(store, row))
    if before := store.read("decisions", row.decision_id):
        store.publish("decisions", row.decision_id, [replace(before[0], recorded_at=decided_at)])
        return row.decision_id
    store.publish("verdicts", row.decision_id, list(evaluation.verdicts(row.decision_id)))
    store.publish("decisions", row.decision_id, [replace(row, decided_at=decided_at, recorded_at=decided_at)])
    return row.decision_id


def _newest_decision(store: Store, row: DecisionRow) -> datetime | None:
    """Return the time of the newest decision of the gate, or on the candidate; None if there is none."""
    query = "select max(recorded_at) from source.decisions where gate = ? or candidate_experiment_id = ?"
    ((newest,),) = store.query(query, [row.gate, row.candidate_experiment_id])
    return newest  # type: ignore[no-any-return]


@task(cache_policy=NO_CACHE, persist_result=False)
def why_gates_stop(spec: ExperimentSpec, rows: list[ExperimentRow]) -> str | None:
    """Return why the run can stop early, once every gate has decided by interim analyses; otherwise None."""
    store = Store()
    combine_scores.fn(rows, whole=False)
    evaluations = list(_evaluations(store, spec, rows))
    if any(gate.interim_analyses is None or gate.conclusion == "NOT ENOUGH EVIDENCE" for gate in evaluations):
        return None
    after = max(gate.interim_analyses.after[-1] for gate in evaluations if gate.interim_analyses is not None)
    return f"stopped after {after} of {rows[0].n_examples} examples: the gates had decided"
