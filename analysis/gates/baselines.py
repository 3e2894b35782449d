"""Baselines: the approved experiments that candidates are compared with. Only a person approves one."""

import getpass

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import TRIAL, ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approved
from evalflows.store.records import BaselineRow, ExperimentRow, after, new_id
from evalflows.store.row_specs import experiment_spec


def baseline_name(spec: ExperimentSpec, gate: GateSpec) -> str:
    """The name under which a gate's baseline is approved, for a baseline that is not a target of the spec."""
    return gate.baseline or spec.name


def baseline_row(store: Store, spec: ExperimentSpec, gate: GateSpec, rows: list[ExperimentRow]) -> ExperimentRow | None:
    """The experiment that a gate compares with: one of this run group, or the approved one; None if none is approved.

    A window of production is none either.

    Raises InputError if the approved experiment is not in the store.
    """
    target = spec.baseline_target(gate)
    if target is not None:
        return next(row for row in rows if row.target == target)
    if gate.production is not None:
        return None
    approval = approved(store, name := baseline_name(spec, gate))
    if approval is None:
        return None
    experiments: list[ExperimentRow] = store.read("experiments", approval.experiment_id)
    if not experiments:
        raise InputError(f"baseline {name!r}: approved {approval.experiment_id}, which is not in {store.layout.root}")
    return experiments[0]


def no_baseline(spec: ExperimentSpec, gate: GateSpec) -> str:
    """The message for a baseline that is not approved yet."""
    name = baseline_name(spec, gate)
    return (
        f"no experiment is approved as baseline {name!r} in this store: `evalflows run` the version to compare with, "
        f"then `evalflows baseline approve EXPERIMENT --name {name}`"
    )


def approve_baseline(
    store: Store, row: ExperimentRow, name: str | None = None, *, reason: str | None = None, by: str | None = None
) -> BaselineRow:
    """Approve an experiment as the baseline of that name, by default its spec's name.

    Raises InputError for a trial, and for an incomplete experiment: its missing values would count against every
    candidate.
    """
    if row.state != "completed":
        why = f": {row.reason}" if row.reason else ""
        raise InputError(f"experiment {row.name!r} is {row.state}{why}; wanted a complete one (`evalflows resume`)")
    if TRIAL in row.tags:
        raise InputError(f"experiment {row.name!r}: got the tag {TRIAL!r}, wanted one that gates may compare with")
    name = name or experiment_spec(row).name
    before = approved(store, name)
    recorded_at = after(row.recorded_at, before.recorded_at if before else None)
    approval = BaselineRow(
        baseline_id=new_id("base", recorded_at),
        name=name,
        experiment_id=row.experiment_id,
        approved_by=by or getpass.getuser(),
        reason=reason,
        recorded_at=recorded_at,
    )
    store.publish("baselines", approval.baseline_id, [approval])
    return approval
