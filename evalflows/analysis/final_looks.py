"""Whether a gate may run the final examples, those of the split `final`.

Of many variants that are tried on the same examples, the best is ahead partly by luck. Examples on which few decisions
are made show what it is worth. So only `evalflows gate` runs the final ones. Each of its runs is a look, kept as a
check; a spec allows `final_looks` of them since its baseline was approved, and a further one with a reason.

Whoever may look three times passes a bad candidate up to three times as often. So the looks share the level of the
gate's rules: their error rates add up to that of one (Bonferroni).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from evalflows.analysis.baselines import baseline_name
from evalflows.engine.prepare import id_of_run_key
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.target import RecordedTarget
from evalflows.store.kept_checks import keep_check
from evalflows.store.leases import held_leases, hold_lease
from evalflows.store.manifests import user_name
from evalflows.store.queries.conclusions import approvals
from evalflows.store.queries.looks import LOOK, Look, final_ids, look_id, look_of, looks_at, reading_id, unkept_looks
from evalflows.store.queries.progress import spooled_rows
from evalflows.store.records import FINAL, to_json
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """The looks of other run groups since the newest baseline was approved."""

    since: datetime | None
    kept: Sequence[Look]
    unkept: Sequence[str]  # run groups
    spent: float  # the share of the level; one that kept none counts as one of equal parts

    @property
    def count(self) -> int:
        return len(self.kept) + len(self.unkept)


def _earlier(store: Store, spec: ExperimentSpec, run_group: str) -> _Earlier:
    since, equal = _since(store, spec), 1 / len(spec.look_shares)
    kept, unkept = _others(store, spec, run_group, since), _unkept(store, spec, run_group, since)
    spent = sum(equal if look.share is None else look.share for look in kept) + equal * len(unkept)
    return _Earlier(since=since, kept=kept, unkept=unkept, spent=spent)


def check_looks(store: Store, spec: ExperimentSpec) -> bool:
    """Return whether a run of this spec would be a look. Raise InputError if it would be one too many, before anything
    is started."""
    if not _is_look(store, spec):
        return False
    own = id_of_run_key("group", spec.run_key) if spec.run_key else ""
    _refuse_too_many(spec, _earlier(store, spec, own))
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
        earlier = _earlier(store, spec, run_group)
        _refuse_too_many(spec, earlier)
        number, allowed = earlier.count + 1, len(spec.look_shares)
        if number <= allowed and spec.look_again:
            print_note(f"look {number} of {allowed}: look_again was not needed, and is not kept")
        again = None if number <= allowed else spec.look_again
        _keep(store, spec, look_id(run_group), run_group, earlier, {"again": again, "git_commit": git_commit})


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
            look = {"again": None, "git_commit": None, "is_reading": True}
            kept = _keep(store, spec, batch, row.run_group, _earlier(store, spec, ""), look)
        said.append(f"{kept}: reading single ones counts")
    return said


def _keep(
    store: Store, spec: ExperimentSpec, batch: str, run_group: str, earlier: _Earlier, fields: Mapping[str, Any]
) -> str:
    """Keep a look after the earlier ones, and return which it is, in words."""
    number, shares, left = earlier.count + 1, spec.look_shares, 1 - earlier.spent
    share = shares[min(number, len(shares)) - 1]
    look = {
        "snapshot": spec.dataset.snapshot,
        "number": number,
        "allowed": len(shares),
        "share": min(share, left) if left > NONE_LEFT else share,
        "is_equal_share": isinstance(spec.final_looks, int) and share <= left + NONE_LEFT,
        "since": earlier.since and earlier.since.isoformat(),
        "by": user_name(),
        "spec": hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16],
        **fields,
    }
    which = f"look {number} of {len(shares)} at the final examples"
    keep_check(store, batch, LOOK, ("spec", run_group), which, to_json(look), passed=number <= len(shares))
    return which


def at_level_of_look(store: Store, spec: ExperimentSpec, run_group: str) -> ExperimentSpec:
    """Return the spec with the confidence level at which gates decide on a run group: higher if it had a look, which
    spends its share of the errors."""
    look = look_of(store, run_group)
    if look is None or look.share is None:
        return spec
    return spec.model_copy(update={"confidence_level": 1 - (1 - spec.confidence_level) * look.share})


def _refuse_too_many(spec: ExperimentSpec, earlier: _Earlier) -> None:
    allowed, unkept = len(spec.look_shares), earlier.unkept
    is_spent = 1 - earlier.spent <= NONE_LEFT
    if (earlier.count >= allowed or is_spent) and not spec.look_again:
        by = ""
        if earlier.kept:
            last = earlier.kept[-1]
            by = f", the last by {last.by or 'somebody'} at commit {(last.git_commit or 'unknown')[:7]}"
        by += f"; {len(unkept)} of them, such as {unkept[-1]}, without a row in `checks`" if unkept else ""
        wanted = (
            f"wanted fewer than {allowed} (final_looks)" if earlier.count >= allowed else "which have spent the level"
        )
        raise InputError(
            f"gate: got {earlier.count} looks at the final examples since the baseline was approved{by}, {wanted}; "
            "--look-again REASON takes one more, which every report shows"
        )


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
