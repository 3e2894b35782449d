"""Whether a gate may run the final examples, those of the split `final`.

Of many variants that are tried on the same examples, the best is ahead partly by luck. Examples on which few decisions
are made show what it is worth. So only `evalflows gate` runs the final ones. Each of its runs is a look, kept as a
check; a spec allows `final_looks` of them since its baseline was approved, and a further one with a reason.

Whoever may look three times passes a bad candidate up to three times as often. So the looks share the level of the
gate's rules: their error rates add up to that of one (Bonferroni).
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from evalflows.analysis.baselines import baseline_name
from evalflows.engine.prepare import id_of_run_key
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import RecordedTarget
from evalflows.store.leases import held_leases, hold_lease
from evalflows.store.manifests import user_name
from evalflows.store.queries.approvals import approvals
from evalflows.store.queries.looks import LOOK, Look, final_ids, look_id, look_of, looks_at, reading_id, unkept_looks
from evalflows.store.queries.progress import spooled_rows
from evalflows.store.records import FINAL, CheckRow, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.sql import ask
from evalflows.store.store import Store

NONE_LEFT = 1e-9
"""A share of the level that is rounding."""

_ANSWERS = """
select run_group, experiment_id, exists (
    from outputs o where o.experiment_id = e.experiment_id and o.status = 'ok'
) from experiments e where is_one_of(run_group, $1)
"""


def _is_look(store: Store, spec: ExperimentSpec) -> bool:
    """Return whether a run of a frozen spec gets new answers to final examples."""
    if FINAL not in (spec.dataset.splits or ()):  # frozen, it names them
        return False
    if all(isinstance(target, RecordedTarget) and target.experiment for target in spec.targets):
        return False  # as a newer judge scores those of a baseline
    query = "select 1 from examples where snapshot_id = $1 and split = $2 limit 1"
    return bool(ask(store, (query, [spec.dataset.snapshot, FINAL]))[0])


def check_looks(store: Store, spec: ExperimentSpec) -> bool:
    """Return whether a run of this spec would be a look. Raise InputError if it would be one too many, before anything
    is started."""
    if not _is_look(store, spec):
        return False
    own, since = id_of_run_key("group", spec.run_key) if spec.run_key else "", _since(store, spec)
    _refuse_too_many(spec, _others(store, spec, own, since), _unkept(store, spec, own, since))
    return True


def take_look(store: Store, spec: ExperimentSpec, run_group: str, git_commit: str | None) -> None:
    """Keep the look of a run group that is about to start, unless it is resumed or has no final examples.

    The process must have the lease of the run group. Of several at once, only as many get a look as are left: raise
    InputError for the others.
    """
    if not _is_look(store, spec):
        return
    with hold_lease(store, "final-looks", "looks at the final examples", wait=True):
        if look_of(store, run_group) is not None:
            return
        since = _since(store, spec)
        earlier, unkept = _others(store, spec, run_group, since), _unkept(store, spec, run_group, since)
        _refuse_too_many(spec, earlier, unkept)
        number = len(earlier) + len(unkept) + 1
        if number <= len(spec.look_shares) and spec.look_again:
            print_note(f"look {number} of {len(spec.look_shares)}: look_again was not needed, and is not kept")
        left = 1 - _spent(spec, earlier, unkept)
        _publish(store, spec, look_id(run_group), run_group, number, left, since, git_commit)


def keep_reading(store: Store, experiments: Sequence[str]) -> list[str]:
    """Keep that a person has read single final examples of experiments, a look for each run group that has any.

    What is read can be fitted, as what a run has shown. Return what to say of each look.
    """
    said = []
    for identity in experiments:
        (row,) = store.read("experiments", identity)
        spec, batch = experiment_spec(row), reading_id(row.run_group)
        with hold_lease(store, "final-looks", "looks at the final examples", wait=True):
            if not final_ids(store, [identity]) or store.is_sealed("checks", batch):
                continue
            spec = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"snapshot": row.snapshot_id})})
            since = _since(store, spec)
            earlier, unkept = _others(store, spec, "", since), _unkept(store, spec, "", since)
            number, left = len(earlier) + len(unkept) + 1, 1 - _spent(spec, earlier, unkept)
            _publish(store, spec, batch, row.run_group, number, left, since, None, is_reading=True)
        said.append(f"look {number} of {len(spec.look_shares)} at the final examples: reading single ones counts")
    return said


def _publish(
    store: Store,
    spec: ExperimentSpec,
    batch: str,
    run_group: str,
    number: int,
    left: float,
    since: datetime | None,
    git_commit: str | None,
    *,
    is_reading: bool = False,
) -> None:
    """Publish a look, the `number`th, of which the earlier ones have `left` this share of the level."""
    shares = spec.look_shares
    is_allowed, share = number <= len(shares), shares[min(number, len(shares)) - 1]
    look = {
        "snapshot": spec.dataset.snapshot,
        "number": number,
        "allowed": len(shares),
        "share": min(share, left) if left > NONE_LEFT else share,
        "is_equal_share": isinstance(spec.final_looks, int) and share <= left + NONE_LEFT,
        "is_reading": is_reading,
        "again": None if is_allowed or is_reading else spec.look_again,
        "since": since and since.isoformat(),
        "by": user_name(),
        "git_commit": git_commit,
        "spec": hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16],
    }
    row = CheckRow(
        check_id=batch,
        batch_id=batch,
        subject_kind="spec",
        subject_id=run_group,
        name=LOOK,
        passed=is_allowed,
        severity="warning",
        observed=to_json(look),
        message=f"look {number} of {len(shares)} at the final examples",
    )
    store.publish("checks", batch, [row])


def at_level_of_look(store: Store, spec: ExperimentSpec, run_group: str) -> ExperimentSpec:
    """Return the spec with the confidence level at which gates decide on a run group: higher if it had a look, which
    spends its share of the errors."""
    look = look_of(store, run_group)
    if look is None or look.share is None:
        return spec
    return spec.model_copy(update={"confidence_level": 1 - (1 - spec.confidence_level) * look.share})


def _refuse_too_many(spec: ExperimentSpec, earlier: list[Look], unkept: list[str]) -> None:
    count, allowed = len(earlier) + len(unkept), len(spec.look_shares)
    is_spent = 1 - _spent(spec, earlier, unkept) <= NONE_LEFT
    if (count >= allowed or is_spent) and not spec.look_again:
        by = ""
        if earlier:
            last = earlier[-1]
            by = f", the last by {last.by or 'somebody'} at commit {(last.git_commit or 'unknown')[:7]}"
        by += f"; {len(unkept)} of them, such as {unkept[-1]}, without a row in `checks`" if unkept else ""
        wanted = f"wanted fewer than {allowed} (final_looks)" if count >= allowed else "which have spent the level"
        raise InputError(
            f"gate: got {count} looks at the final examples since the baseline was approved{by}, {wanted}; "
            "--look-again REASON takes one more, which every report shows"
        )


def _spent(spec: ExperimentSpec, earlier: list[Look], unkept: list[str]) -> float:
    """Return the share of the level that looks have spent; one that kept none counts as one of equal parts."""
    equal = 1 / len(spec.look_shares)
    return sum(equal if look.share is None else look.share for look in earlier) + equal * len(unkept)


def _unkept(store: Store, spec: ExperimentSpec, run_group: str, since: datetime | None) -> list[str]:
    """Return the other run groups with answers to the final examples whose looks are not kept."""
    found = unkept_looks(store, spec.dataset.snapshot or "", since)
    return [group for group in found if group != run_group]


def _others(store: Store, spec: ExperimentSpec, run_group: str, since: datetime | None) -> list[Look]:
    """Return the looks of other run groups since the baseline was approved that have answers or are at work.

    One that ended before any answer has shown nothing.
    """
    looks = looks_at(store, spec.dataset.snapshot or "", since)
    shown = {*held_leases(store), *_answered(store, [look.run_group for look in looks])} - {run_group}
    return [look for look in looks if look.run_group in shown]


def _answered(store: Store, groups: list[str]) -> Iterator[str]:
    """Yield the run groups with answers, also those that a process which died has left behind."""
    (rows,) = ask(store, (_ANSWERS, [groups]))
    for group, identity, has_answers in rows:
        if has_answers or spooled_rows(store, identity, ("outputs",)):
            yield group


def _since(store: Store, spec: ExperimentSpec) -> datetime | None:
    """When the newest of the baselines that the spec's gates compare with was approved, for the first time in a row."""
    names = {spec.name, *(baseline_name(spec, gate) for gate in spec.gates if spec.baseline_target(gate) is None)}
    held = (approval for approval in approvals(store) if approval.name in names)  # by name, newest first
    same = (next(groupby(of_name, lambda a: a.experiment_id))[1] for _, of_name in groupby(held, lambda a: a.name))
    return max((min(approval.recorded_at for approval in approved) for approved in same), default=None)
