"""Deciding anew on what is in the store, and approving baselines, as functions."""

from collections.abc import Sequence

from flows.result import ExperimentResult
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.lookup import find_experiments
from store.parquet import Store
from store.records import BaselineRow, DecisionRow, ExperimentRow
from tasks.baselines import approve_baseline
from tasks.case import Case

Compared = str | ExperimentResult


def decide_again(decision_id: str) -> DecisionRow:
    """A decision made anew from what is in the store now. Its id is the same where the evidence is."""
    store = Store()
    row: DecisionRow = store.read("decisions", decision_id)[0]
    candidate = _experiment(store, row.candidate_experiment_id)
    baseline = _experiment(store, row.baseline_experiment_id) if row.baseline_experiment_id else None
    spec = ExperimentSpec.model_validate_json(candidate.spec).model_copy(update={"level": row.level})
    gate = GateSpec.model_validate_json(row.policy)
    return Case(store=store, spec=spec, gate=gate, candidate=candidate, baseline=baseline).decision


def decide_on(
    candidate: Compared, baseline: Compared | None, gate: GateSpec, level: float | None = None
) -> DecisionRow:
    """What a gate says of an experiment that exists, against another one. It is not kept.

    Each is an id, the beginning of one, a name, or what `evaluate` gave back; no baseline is needed for floors alone.
    `level` is that of the candidate's spec where left out.
    Raises InputError for experiments that there are not, and where a guard or a goal has no baseline.
    """
    store = Store()
    if baseline is None and gate.compares:
        raise InputError(f"gate {gate.name!r}: got no baseline, wanted one for guards and goals")
    ours = _experiment(store, _identity(store, candidate))
    theirs = None if baseline is None else _experiment(store, _identity(store, baseline))
    spec = ExperimentSpec.model_validate_json(ours.spec)
    spec = spec if level is None else spec.model_copy(update={"level": level})
    return Case(store=store, spec=spec, gate=gate, candidate=ours, baseline=theirs).decision


def approve(
    experiment: Compared, name: str | None = None, *, reason: str | None = None, by: str | None = None
) -> BaselineRow:
    """From now on, gates compare with this experiment (its id, the beginning of one, or its name).

    `name` is what it is the baseline of; the name of its spec where left out. Raises InputError for an experiment that
    there is not, or that is not complete.
    """
    store = Store()
    row = _experiment(store, _identity(store, experiment))
    return approve_baseline(store, row, name, reason=reason, by=by)


def _identity(store: Store, experiment: Compared) -> str:
    if isinstance(experiment, ExperimentResult):
        return experiment.experiment_id
    (identity,) = find_experiments(store, experiment, just_one=True)
    return identity


def _experiment(store: Store, identity: str) -> ExperimentRow:
    rows: Sequence[ExperimentRow] = store.read("experiments", identity)
    if not rows:
        raise InputError(f"experiment {identity}: not in {store.layout.root}")
    return rows[0]
