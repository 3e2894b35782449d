"""Decide on stored experiments: gates, and approvals of baselines."""

import os
from pathlib import Path

from evalflows.analysis.baselines import approve_baseline
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.final_looks import at_level_of_look
from evalflows.analysis.gate_evaluation import GateEvaluation, keep_decision
from evalflows.analysis.production_baseline import with_fixed_window
from evalflows.api.results import Compared, experiment_row, identity_of
from evalflows.specs.errors import InputError
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import TRIAL
from evalflows.specs.quarantine import refuse_expired
from evalflows.store.evidence import evidence_on
from evalflows.store.queries.shared_examples import check_slices_of
from evalflows.store.records import BaselineRow, DecisionRow, now
from evalflows.store.row_specs import experiment_spec, gate_spec
from evalflows.store.store import Store


def decide_again(decision_id: str) -> DecisionRow:
    """Make a decision again from the current store. Its id is the same if the evidence is the same.

    Raise StorageError for evidence that no run wrote.
    """
    store = Store()
    row: DecisionRow = store.read("decisions", decision_id)[0]
    candidate = experiment_row(store, row.candidate_experiment_id)
    baseline = experiment_row(store, row.baseline_experiment_id) if row.baseline_experiment_id else None
    gate = gate_spec(row)
    then = {"quarantine": gate.quarantine, "quarantine_at_most": gate.quarantine_at_most}
    spec = experiment_spec(candidate).model_copy(update={"confidence_level": row.confidence_level, **then})
    pair = ExperimentPair(reader=MetricReader(store), spec=spec, candidate=candidate, baseline=baseline)
    evaluation = GateEvaluation(gate=gate, pair=pair)
    evidence_on(store, evaluation.evidence)
    return evaluation.decision()


def decide_on(
    candidate: Compared, baseline: Compared | None, gate: GateSpec, confidence_level: float | None = None
) -> DecisionRow:
    """Decide a gate on two existing experiments, and store the decision: `evalflows explain` explains it.

    Args:
        candidate: Id, id prefix or name of an experiment, or a result of `evaluate`.
        baseline: The same; None if the gate has only thresholds, or names a window of production.
        gate: The gate to decide.
        confidence_level: Default: that of the candidate's spec, or of its look at the final examples.

    Raise InputError if an experiment does not exist or is a trial, if a non-inferiority or superiority rule has no
    baseline, if a slice of a rule holds no example, or for a quarantine that is over or not for this gate.
    """
    store = Store()
    gate = with_fixed_window(gate)
    if gate.production is not None and baseline is not None:
        raise InputError(f"gate {gate.name!r}: got a baseline and a window of production, wanted one of them")
    if baseline is None and gate.compares and gate.production is None:
        raise InputError(f"gate {gate.name!r}: got no baseline, wanted one for non_inferiority and superiority")
    candidate_row = experiment_row(store, identity_of(store, candidate))
    baseline_row = None if baseline is None else experiment_row(store, identity_of(store, baseline))
    for row in (candidate_row, baseline_row):
        if row is not None and TRIAL in row.tags:
            raise InputError(f"experiment {row.name!r}: got the tag {TRIAL!r}, wanted a run that gates may decide on")
    check_slices_of(store, gate, candidate_row)
    spec = at_level_of_look(store, experiment_spec(candidate_row), candidate_row.run_group)
    refuse_expired(spec.quarantine, now().date())
    if why := spec.why_not_in_quarantine(gate):
        raise InputError(why)
    spec = spec if confidence_level is None else spec.model_copy(update={"confidence_level": confidence_level})
    pair = ExperimentPair(reader=MetricReader(store), spec=spec, candidate=candidate_row, baseline=baseline_row)
    return keep_decision(store, GateEvaluation(gate=gate, pair=pair))


def approve(
    experiment: Compared,
    name: str | None = None,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: str | os.PathLike[str] | None = None,
) -> BaselineRow:
    """Approve an experiment as the baseline that gates compare with from now on.

    Args:
        experiment: Id, id prefix or name of an experiment, or a result of `evaluate`.
        name: Name of the baseline. Default: the name of the experiment's spec.
        reason: Reason for the approval.
        by: Who approves it. Default: the current user.
        key: File of an SSH key that signs the approval.

    Raise InputError if the experiment does not exist or is not complete, and if the key cannot sign.
    """
    store = Store()
    row = experiment_row(store, identity_of(store, experiment))
    signing = None if key is None else Path(key).expanduser()
    return approve_baseline(store, row, name, reason=reason, by=by, key=signing)
