"""Baselines of gates: experiments, or windows of production, that a person approved."""

import getpass
import os
import subprocess
from pathlib import Path

from evalflows.specs import hints
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import located
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import TRIAL
from evalflows.specs.values import words
from evalflows.store.evidence import check_none_deleted, evidence_on
from evalflows.store.kept_checks import keep_check
from evalflows.store.queries.conclusions import DOOR, Door, approvals, approved, not_passed
from evalflows.store.queries.continuing import continued_by
from evalflows.store.records import FINAL, BaselineRow, ExperimentRow, after, derived_id, new_id, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.signatures import sign, signature_of
from evalflows.store.store import Store


def baseline_name(spec: ExperimentSpec, gate: GateSpec) -> str:
    """Return the name under which a gate's baseline is approved, for a baseline that is not a target of the spec."""
    return gate.baseline or spec.name


def baseline_row(store: Store, spec: ExperimentSpec, gate: GateSpec, rows: list[ExperimentRow]) -> ExperimentRow | None:
    """Return the experiment that a gate compares with: one of this run group, or the approved one; None if none is
    approved.

    A window of production is none either.

    Raise InputError if the approved experiment is not in the store.
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


def approval_problem(store: Store, gate: GateSpec, name: str, experiment_id: str) -> str | None:
    """Return why an approval of a baseline is not one that the gate wants; None if it is, or if any will do.

    Raise StorageError if the approval or the experiment has changed since it was signed.
    """
    if not gate.approved_by and gate.signers is None:
        return None
    approval = next((approval for approval in approvals(store, [experiment_id]) if approval.name == name), None)
    if approval is None:
        return f"got a baseline that nobody approved as {name!r}, wanted an approved one (approved_by, signers)"
    if gate.signers is None:
        if approval.approved_by in gate.approved_by:
            return None
        by = approval.approved_by or "somebody"
        return f"got the baseline {name!r} approved by {by}, wanted {' or '.join(gate.approved_by)} (approved_by)"
    (row,) = store.read("baselines", approval.baseline_id)
    signed = hints.approve_signed(name, experiment_id).code
    try:
        if signature_of(store, row, located(gate.signers), gate.approved_by):
            return None
    except StorageError as error:
        raise StorageError(f"the approval of the baseline {name!r}: {error}; {signed} approves it again") from error
    return f"the approval of the baseline {name!r} is not signed, wanted a key in {gate.signers}: {signed}"


def no_baseline(spec: ExperimentSpec, gate: GateSpec, newest: str | None) -> str:
    """Return the message for a baseline that is not approved yet; `newest` is the experiment that could be."""
    name = baseline_name(spec, gate)
    if FINAL in (spec.dataset.splits or ()):
        return (
            f"no experiment is approved as baseline {name!r} in this store: run the version to compare with by "
            f"this gate, then {hints.approve_as(name).code}"
        )
    if newest is not None:
        command = hints.approve_as(name, newest).code
        return f"no experiment is approved as baseline {name!r} in this store: {command} approves one"
    return (
        f"no experiment is approved as baseline {name!r} in this store: {hints.run().code} runs the version to compare "
        f"with, then {hints.approve_as(name).code}"
    )


def approve_baseline(
    store: Store,
    row: ExperimentRow,
    name: str | None = None,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: Path | None = None,
    through: Door = "python",
) -> BaselineRow:
    """Approve an experiment as the baseline of that name, and sign that with an SSH key.

    The default is its spec's name; of recorded results, whose spec has the name of what they were compared with, their
    own.

    The approval keeps the door that it came through, and which process started this one.

    Raise InputError for a key that cannot sign, for a trial, for an incomplete experiment, whose missing values would
    count against every candidate, and without a reason for one that a gate's newest decision did not pass.
    """
    if row.state != "completed":
        why = f": {row.reason}" if row.reason else ""
        continued = continued_by(store, row.experiment_id)
        raise InputError(f"experiment {row.name!r} is {row.state}{why}; wanted a complete one; {continued}")
    if TRIAL in row.tags:
        raise InputError(f"experiment {row.name!r}: got the tag {TRIAL!r}, wanted a baseline that gates may use")
    if reason is not None:
        try:
            reason = words(reason)
        except ValueError as error:
            raise InputError(f"reason: {error}") from error
    if reason is None:
        for gate, conclusion in not_passed(store, row.experiment_id)[:1]:
            raise InputError(
                f"experiment {row.name!r}: got {conclusion} from the gate {gate!r}, wanted another experiment, or a "
                "reason to approve it anyway (--reason)"
            )
    if key is None:
        check_none_deleted(store, [row.experiment_id, row.snapshot_id])
    else:
        evidence_on(store, [row.experiment_id, row.snapshot_id])  # what is signed is what a run wrote
    name = name or (row.name if are_recorded(row) else experiment_spec(row).name)
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
    if key is not None:  # before it counts
        sign(store, approval, [row.experiment_id], key)
    door, subject = {"through": through, "started_by": _parent_process()}, approval.baseline_id
    message = f"approved through {through}"
    keep_check(store, derived_id(DOOR, subject), DOOR, ("baseline", subject), message, to_json(door), passed=True)
    store.publish("baselines", approval.baseline_id, [approval])
    return approval


def are_recorded(row: ExperimentRow) -> bool:
    """Return whether `decide --store` kept the experiment: its scores are from a file, and no spec can run it."""
    return row.target_kind == "recorded" and row.evaluators == "[]"


def _parent_process() -> str | None:
    """Return the name of the process that started this one; None if the system does not say it."""
    try:
        return Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:  # not Linux
        pass
    try:
        done = subprocess.run(["ps", "-o", "comm=", "-p", str(os.getppid())], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
