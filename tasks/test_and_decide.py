"""Gate decisions: evaluate each gate of a spec on the stored results."""

from collections.abc import Iterator

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.gates.baselines import baseline_row
from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.analysis.gates.kept_decision import keep_decision
from evalflows.reports.decisions import decisions_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow
from evalflows.tasks.combine import combine_scores
from evalflows.tasks.start_columns import flow_run_id


@task(cache_policy=NO_CACHE, persist_result=False)
def decide(spec: ExperimentSpec, rows: list[ExperimentRow]) -> list[str]:
    """Publish the decision of every gate on every candidate of a run group, and return the decision ids.

    The same evidence gives the same decision id, stored once. Decisions on other evidence are kept.
    """
    store = Store()
    evaluations = _evaluations(store, spec, rows)
    return [keep_decision(store, evaluation, flow_run_id()).decision_id for evaluation in evaluations]


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
