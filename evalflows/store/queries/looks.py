"""The looks at the final examples that are kept: which runs had them."""

from collections import defaultdict
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from typing import Any

from evalflows.specs.frozen import dataclass
from evalflows.store.final_examples import Inputs
from evalflows.store.records import FINAL, derived_id, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

LOOK = "final_look"
"""The name of the check that keeps a look."""

_EVER = datetime(1970, 1, 1, tzinfo=UTC)

_WITHOUT_LOOK = """
select experiment_id from experiments
where name = $1 and run_group not in (select subject_id from checks where name = $2) order by started_at desc limit 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A run of the final examples."""

    run_group: str
    snapshot: str
    number: int  # since the baseline was approved, from 1
    allowed: int
    again: str | None  # why there is one more than allowed
    since: datetime | None  # when the baseline was approved; None without one
    by: str | None
    git_commit: str | None
    spec: str  # a hash of it
    share: float | None = None  # of the level of its rules that it spends; None before looks shared it
    is_equal_share: bool = False  # whether each look spends as much
    is_reading: bool = False  # of single examples by a person, after the run


def look_id(run_group: str) -> str:
    """Return the id of the check that keeps the look of a run group."""
    return derived_id(LOOK, run_group)


def reading_id(run_group: str) -> str:
    """Return the id of the check that keeps that a person has read single final examples of a run group."""
    return derived_id(LOOK, run_group, "reading")


def look_of(store: Store, run_group: str) -> Look | None:
    """Return the look of a run group; None if it had no final examples."""
    (found,) = ask(store, ("select subject_id, observed from source.checks where batch_id = $1", [look_id(run_group)]))
    return _look(*found[0]) if found else None


def looks_at(store: Store, snapshot: str, since: datetime | None) -> list[Look]:
    """Return the looks since then at any of the final examples of a snapshot, in order.

    Snapshots are compared by inputs: a sample, a dataset with one example more, or other ids are no new chance.
    """
    (found,) = ask(store, (_SINCE, [LOOK, since or _EVER]))
    looks = [_look(*row) for row in found]
    same = _with_inputs_of(store, snapshot, {look.snapshot for look in looks})
    return [look for look in looks if look.snapshot in same]


def unkept_looks(store: Store, snapshot: str, since: datetime | None) -> list[str]:
    """Return the run groups that have answered any of the final examples of a snapshot since then without a look that
    is kept, the newest last: somebody has removed it, or has run these examples in another way."""
    (found,) = ask(store, (_UNKEPT, {"look": LOOK, "since": since or _EVER, "final": FINAL}))
    same = _with_inputs_of(store, snapshot, {of_run for _, of_run in found})
    return [run_group for run_group, of_run in found if of_run in same]


def final_ids(store: Store, experiments: Sequence[str]) -> frozenset[str]:
    """Return the ids of the final examples of experiments."""
    (found,) = ask(store, (_FINAL_IDS, [list(experiments), FINAL]))
    return frozenset(identity for (identity,) in found)


def looks_until(store: Store, look: Look) -> Sequence[Look]:
    """Return the looks at the same examples since the baseline was approved, up to this one."""
    return [other for other in looks_at(store, look.snapshot, look.since) if other.number <= look.number]


def newest_without_look(store: Store, name: str) -> str | None:
    """Return the newest experiment of a name that ran no final examples; None if there is none."""
    (found,) = ask(store, (_WITHOUT_LOOK, [name, LOOK]))
    return found[0][0] if found else None


def _with_inputs_of(store: Store, snapshot: str, others: Set[str]) -> Set[str]:
    """Return the snapshots that have any of the final examples of this one."""
    if others <= {snapshot}:
        return others
    (rows,) = ask(store, (_INPUTS, [[snapshot, *others], FINAL]))
    keys: defaultdict[str, set[bytes]] = defaultdict(set)
    for owner, *inputs in rows:
        keys[owner].add(Inputs.stored(*inputs).key)
    return {other for other in others if keys[other] & keys[snapshot]}


def _look(run_group: str, observed: str) -> Look:
    fields: dict[str, Any] = from_json(observed)
    since = fields.pop("since")
    return Look(run_group=run_group, since=since and datetime.fromisoformat(since), **fields)


_SINCE = """
select subject_id, observed::varchar from checks where name = $1 and recorded_at > $2
order by (observed ->> 'number')::int, recorded_at
"""

_INPUTS = "select snapshot_id, example_id, inputs, attachments from examples where snapshot_id in $1 and split = $2"

_FINAL_IDS = """
select distinct example_id from source.examples
where snapshot_id in (select snapshot_id from source.experiments where is_one_of(experiment_id, $1)) and split = $2
"""

_UNKEPT = """
select run_group, any_value(snapshot_id) from experiments e
where started_at > $since
  and run_group not in (
    select subject_id from checks where name = $look and coalesce(observed ->> 'is_reading', 'false') = 'false'
  )
  and exists (
    select 1 from outputs o join examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
    where o.experiment_id = e.experiment_id and o.status = 'ok' and o.reused_from is null and x.split = $final
  )
group by run_group order by max(started_at)
"""
