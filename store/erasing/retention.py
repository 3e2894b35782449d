"""Retention: texts that rules say are too old are erased, and old experiments that nothing refers to are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evalflows.specs.errors import InputError
from evalflows.specs.retention import RetentionSpec
from evalflows.specs.safe_text import print_note
from evalflows.store.catalog import ask
from evalflows.store.erased import ATTRIBUTE, FIELD
from evalflows.store.erasing.erase import check_sound, erase_planned, finish_planned, with_counts
from evalflows.store.erasing.plan import Plan, new_plan
from evalflows.store.erasing.removal import old_groups, remove_groups, rows_of_groups
from evalflows.store.erasing.subjects import Subjects, evaluation_of, trace_rows
from evalflows.store.leases.lease import held_leases, leased
from evalflows.store.packing import LEASE as PACKING
from evalflows.store.parquet import Store
from evalflows.store.records import ErasureRow, new_id, now, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one rule found too old: rows that lose texts or are removed, by table."""

    rule: str
    rows: Mapping[str, int]
    experiments: Sequence[str] = ()  # those that are removed


def retain(store: Store, spec: RetentionSpec, by: str | None) -> list[Retained]:
    """Apply the rules. What a process works on at the moment waits for the next time.

    Interrupted erasures are finished first. Raise StorageError for a damaged file, with nothing changed by the rules.
    """
    with leased(store, PACKING, "applying rules of retention", wait=True):
        finish_planned(store)
        check_sound(store)
        done = []
        for rule, subjects in _texts(store, spec, now()):
            try:
                rows = erase_planned(store, _plan(rule, subjects, by)).rows
            except InputError as error:  # a process has just begun to work on some of it
                print_note(f"{rule}: waits for the next time: {error}")
                rows = {}
            done.append(Retained(rule=rule, rows=rows))
        return [*done, *_removed(store, spec, by)]


def would_retain(store: Store, spec: RetentionSpec) -> list[Retained]:
    """Return what `retain` would do. Nothing is written."""
    check_sound(store)
    found = [
        Retained(rule=rule, rows=with_counts(store, _plan(rule, subjects, None)).counts)
        for rule, subjects in _texts(store, spec, now())
    ]
    if spec.experiments_days is None:
        return found
    groups = old_groups(store, now() - timedelta(days=spec.experiments_days), spec.keep_last)
    experiments = sorted(experiment for members in groups.values() for experiment in members)
    rule = f"experiments_days: {spec.experiments_days}"
    return [*found, Retained(rule=rule, rows=rows_of_groups(store, groups), experiments=experiments)]


def _removed(store: Store, spec: RetentionSpec, by: str | None) -> list[Retained]:
    if spec.experiments_days is None:
        return []
    rule = f"experiments_days: {spec.experiments_days}"
    groups = old_groups(store, now() - timedelta(days=spec.experiments_days), spec.keep_last)
    rows, removed = remove_groups(store, groups)
    if removed:
        at = now()
        row = ErasureRow(
            erasure_id=new_id("erasure", at),
            kind="rule",
            selector_hash=rule,
            erased_by=by,
            rows=to_json(dict(rows)),
            owners=[*removed],
            recorded_at=at,
        )
        store.publish("erasures", row.erasure_id, [row])
    return [Retained(rule=rule, rows=rows, experiments=removed)]


def _plan(rule: str, subjects: Subjects, by: str | None) -> Plan:
    return new_plan("rule", rule, by, keys=subjects.keys, owners=sorted(subjects.owners), leases=subjects.leases)


def _texts(store: Store, spec: RetentionSpec, at: datetime) -> list[tuple[str, Subjects]]:
    """Return the rows whose texts are too old, by rule."""
    found = []
    if spec.trace_texts_days is not None:
        subjects = trace_rows(store, _old_traces(store, at - timedelta(days=spec.trace_texts_days)))
        found.append((f"trace_texts_days: {spec.trace_texts_days}", subjects))
    if spec.call_texts_days is not None:
        subjects = _old_calls(store, at - timedelta(days=spec.call_texts_days))
        found.append((f"call_texts_days: {spec.call_texts_days}", subjects))
    return found


def _old_traces(store: Store, until: datetime) -> list[str]:
    """Return the traces whose last observation began before, of those that still have texts."""
    query = f"""select trace_id from source.observations group by trace_id
                having max(started_at) < ? and bool_or(attributes not like '%"{ATTRIBUTE}"%') order by 1"""
    (rows,) = ask(store, (query, [until]))
    return [trace for (trace,) in rows]


def _old_calls(store: Store, until: datetime) -> Subjects:
    query = f"""select c.call_id, c.experiment_id, coalesce(e.run_group, c.experiment_id)
                from source.calls c left join source.experiments e using (experiment_id)
                where c.started_at < ? and not starts_with(c.request, '{{"{FIELD}":"(erased ') order by 1"""
    (rows,) = ask(store, (query, [until]))
    held, subjects = {*held_leases(store)}, Subjects(keys={"calls": []})
    for call, owner, group in rows:
        lease = evaluation_of(owner) or group
        if lease not in held:
            subjects.keys["calls"].append((call,))
            subjects.leases |= {owner: lease} if owner else {}
    subjects.owners |= subjects.leases.keys()
    return subjects
