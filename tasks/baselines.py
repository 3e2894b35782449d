"""The experiment that candidates are compared with: approved by a person, and never moved by itself."""

import getpass

from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.baselines import approved
from store.parquet import Store
from store.records import BaselineRow, ExperimentRow, new_id


def baseline_name(spec: ExperimentSpec, gate: GateSpec) -> str:
    """Under which name a gate's baseline is approved, where it is none of the targets."""
    return gate.baseline or spec.name


def baseline_row(store: Store, spec: ExperimentSpec, gate: GateSpec, rows: list[ExperimentRow]) -> ExperimentRow | None:
    """What a gate compares with: one of the experiments of this start, or what is approved. None where nothing is.

    Raises InputError where what is approved is not in the store.
    """
    target = spec.baseline_target(gate)
    if target is not None:
        return next(row for row in rows if row.target == target)
    found = approved(store, name := baseline_name(spec, gate))
    if found is None:
        return None
    kept: list[ExperimentRow] = store.read("experiments", found.experiment_id)
    if not kept:
        raise InputError(f"baseline {name!r}: {found.experiment_id} was approved, and is not in {store.layout.root}")
    return kept[0]


def no_baseline(spec: ExperimentSpec, gate: GateSpec) -> str:
    """What to say where nothing is approved."""
    name = baseline_name(spec, gate)
    return f"nothing is approved as baseline {name!r}: `evalflows baseline approve EXPERIMENT --name {name}` does that"


def approve_baseline(
    store: Store, row: ExperimentRow, name: str | None = None, *, reason: str | None = None, by: str | None = None
) -> BaselineRow:
    """From now on, candidates are compared with this experiment under that name; its spec's name where left out.

    Raises InputError for an experiment that is not complete: what it lacks would be held against every candidate.
    """
    if row.state != "completed":
        why = f": {row.reason}" if row.reason else ""
        raise InputError(f"experiment {row.name!r} is {row.state}{why}; wanted a complete one (`evalflows resume`)")
    spec = ExperimentSpec.model_validate_json(row.spec)
    made = BaselineRow(
        baseline_id=new_id("base"),
        name=name or spec.name,
        experiment_id=row.experiment_id,
        approved_by=by or getpass.getuser(),
        reason=reason,
    )
    store.publish("baselines", made.baseline_id, [made])
    return made
