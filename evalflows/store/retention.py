"""Erasing texts everywhere in a store while figures stay, and removing whole experiments that are old and that nothing
refers to."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from evalflows.specs import hints
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.retention import RetentionSpec
from evalflows.store import erasing
from evalflows.store.attachments import remove_unused, unused
from evalflows.store.file_states import state_of, states_of
from evalflows.store.file_systems import follow, storage_errors
from evalflows.store.layout import StoredFile
from evalflows.store.leases import held_leases, hold_lease, refuse_if_in_use
from evalflows.store.manifests import check_written, remove_manifests
from evalflows.store.observations import FEEDBACK, FIRST_DAY, LABELS, PATIENCE_S
from evalflows.store.observations import LEASE as OBSERVATIONS
from evalflows.store.packing import LEASE as PACKING
from evalflows.store.packing import remove_packed
from evalflows.store.records import ErasureRow, now, to_json
from evalflows.store.schemas import ATTRIBUTE, EXPERIMENT_TABLES, FIELD, TABLES
from evalflows.store.spool import BATCHES, RECEIVED, recover, spool_folder
from evalflows.store.sql import ask
from evalflows.store.store import Store

LEFT_S = 600.0
"""Seconds after which a temporary file is one that a killed process has left."""

RULE = "rule"
"""The kind of an erasure by a rule of retention, which names no person."""

Elsewhere = Callable[[Store, erasing.Plan], int]
"""Erases copies of the texts outside the store, such as Prefect's. Returns how many runs had some."""

OF_EXPERIMENT = ("estimates", *EXPERIMENT_TABLES)
"""The tables of one experiment, in the order of removal: its own row last, by which an interrupted removal goes on."""

Groups = Mapping[str, Sequence[str]]
"""The experiments of run groups."""


def nowhere(store: Store, plan: erasing.Plan) -> int:
    """There are no copies."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was erased, or would be: the number of rows that lose texts, by table."""

    erasure_id: str | None  # None if nothing was written
    rows: Mapping[str, int]
    snapshots: Sequence[str]
    owners: Sequence[str]
    set_aside: int = 0  # files of lines and requests that could not be read, which are removed
    elsewhere: int = 0  # flow runs of Prefect's local server whose texts were erased
    finished: Sequence[str] = ()  # earlier erasures that had been interrupted


def erase(store: Store, selection: erasing.Selection, erased_by: str | None, elsewhere: Elsewhere = nowhere) -> Erased:
    """Erase what a selection names. Erasures that were interrupted are finished first.

    Raise InputError if a process works on an experiment or a comparison with such rows, or if calls of it wait for
    batches, and StorageError for a damaged file, all with nothing erased, and StorageError if a file cannot be written:
    erase again to finish.
    """
    with hold_lease(store, PACKING, "erasing texts", wait=True):
        finished = [erased.erasure_id for erased in _finish(store, elsewhere) if erased.erasure_id is not None]
        for folder in sorted({path.parent for path in spool_folder(store).glob("*/*.jsonl")}):
            if folder.name != RECEIVED:  # what killed processes have left, so that it is found
                recover(store, folder.name)
        check_sound(store)
        plan = erasing.new_plan(
            selection.kind,
            erasing.hashed(selection.text),
            erased_by,
            erasing.subjects_of(store, selection),
            selection.kept,
        )
        _refuse_batched(store, plan)
        return replace(_erase_planned(store, plan, elsewhere), finished=finished)


def _refuse_batched(store: Store, plan: erasing.Plan) -> None:
    """Raise InputError if calls of an owner with such rows wait for a batch: their texts are with the provider too."""
    for path in sorted((spool_folder(store) / BATCHES).glob("*/*.calls.jsonl")):
        with path.open("rb") as file:
            owners = {orjson.loads(line)["row"]["experiment_id"] for line in file}
        if waiting := sorted(owners & {*plan.owners}):
            how = f"{hints.resume(path.parent.name).code} first, or delete {path.parent}, which loses their answers"
            raise InputError(f"{waiting[0]} has calls that wait for a batch, wanted {how}")


def finish(store: Store, elsewhere: Elsewhere = nowhere) -> list[Erased]:
    """Finish the erasures that were interrupted. Raise StorageError as `erase`."""
    with hold_lease(store, PACKING, "erasing texts", wait=True):
        return _finish(store, elsewhere)


def _finish(store: Store, elsewhere: Elsewhere) -> list[Erased]:
    return [_carry_out(store, plan, elsewhere) for plan in erasing.plans(store)]


def earlier(store: Store, selection: erasing.Selection) -> tuple[str, datetime] | None:
    """Return the newest erasure of the same selection, and when it was; None if there is none."""
    query = "select erasure_id, recorded_at, selector_hash from source.erasures where kind = ? order by 2 desc"
    rows = store.query(query, [selection.kind])
    return next(((name, at) for name, at, digest in rows if erasing.is_of(selection.text, digest)), None)


def would_erase(store: Store, selection: erasing.Selection) -> Erased:
    """Return what `erase` would do, by the rows that are in files. Nothing is written."""
    check_sound(store)
    plan = _counted(store, erasing.new_plan(selection.kind, "", None, erasing.subjects_of(store, selection)))
    return _erased(plan, None, len(_set_aside(store, plan)))


def _erase_planned(store: Store, plan: erasing.Plan, elsewhere: Elsewhere) -> Erased:
    """Erase the rows of a plan; the lease of packing is held. Raise InputError and StorageError as `erase`."""
    plan = _counted(store, plan)
    if not plan.counts and not _set_aside(store, plan):
        return _erased(plan, None)
    erasing.keep_plan(store, plan)
    try:  # whoever takes a lease from now on sees the plan: see `refuse_erased`
        for name in sorted({*plan.leases.values()} & {*held_leases(store)}):
            refuse_if_in_use(store, name, f"{name}, which has rows to erase")
    except BaseException:
        erasing.remove_plan(store, plan)
        raise
    return _carry_out(store, plan, elsewhere)


def _carry_out(store: Store, plan: erasing.Plan, elsewhere: Elsewhere) -> Erased:
    """Erase the rows of a plan in all files, also in those that others write meanwhile, and end the erasure."""
    eraser, seen, damage = erasing.FileEraser(store, plan), set[tuple[str, object]](), list[StorageError]()
    while todo := [file for file in _files(store, eraser.tables) if (file.path, _state(store, file)) not in seen]:
        for file in todo:
            try:
                with _lease_of(store, file, plan), suppress(FileNotFoundError):  # its rows are in another one now
                    eraser.erase(file)
            except StorageError as error:
                damage.append(error)
            seen.add((file.path, _state(store, file)))
    if damage:
        more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
        raise StorageError(f"{damage[0]}{more}; texts are left there: erase again to finish {plan.erasure_id}")
    aside = _set_aside(store, plan)
    for path in (*aside, *_left_behind(store)):
        path.unlink(missing_ok=True)
    follow(store.filesystem)  # so that this machine's mirror of an object store has no old copies
    n_elsewhere = elsewhere(store, plan)
    remove_unused(store)
    _record(store, plan)
    erasing.remove_plan(store, plan)
    return _erased(plan, plan.erasure_id, len(aside), n_elsewhere)


def _record(store: Store, plan: erasing.Plan) -> None:
    row = ErasureRow(
        erasure_id=plan.erasure_id,
        kind=plan.kind,
        selector_hash=plan.selector_hash,
        erased_by=plan.erased_by,
        rows=to_json(dict(plan.counts)),
        snapshots=[*plan.snapshots],
        owners=[*plan.owners],
        kept=[*plan.kept],
        recorded_at=plan.recorded_at,
    )
    store.publish("erasures", plan.erasure_id, [row])


def check_sound(store: Store) -> None:
    """Raise StorageError for a damaged file, since nobody can say whose texts are in it, and for one that no run wrote,
    since it would be written again as one of ours."""
    layout, fs = store.layout, store.filesystem
    check_written(layout, fs, [path for path in sorted(states_of(layout, fs)) if StoredFile.at(path)])


def _counted(store: Store, plan: erasing.Plan) -> erasing.Plan:
    """Return a plan with the number of rows that have texts to erase, by table."""
    eraser, counts = erasing.FileEraser(store, plan), Counter[str]()
    for file in _files(store, eraser.tables):
        with suppress(FileNotFoundError):
            counts[file.table] += eraser.erase(file, write=False)
    counts["attachments"] = len(unused(store, plan.keys.get("about", {}).get("examples", ())))
    return replace(plan, counts={table: count for table, count in sorted(counts.items()) if count})


def _files(store: Store, tables: Collection[str]) -> list[StoredFile]:
    """Return the files of tables, those of examples first: whoever starts on them sees that they were erased."""
    paths = states_of(store.layout, store.filesystem, tables)
    files = [file for path in sorted(paths) if (file := StoredFile.at(path))]
    return sorted(files, key=lambda file: file.table != "examples")


def _state(store: Store, file: StoredFile) -> object:
    return state_of(store.layout, store.filesystem, file.path)


def _lease_of(store: Store, file: StoredFile, plan: erasing.Plan) -> AbstractContextManager[object]:
    """Hold the lease of those who replace a file. Packed ones are only replaced under the lease of packing."""
    if file.table == "observations" or file.owner.startswith(FEEDBACK):
        name = OBSERVATIONS
    elif file.table == "labels":
        name = LABELS
    else:
        name = plan.leases.get(file.owner, "")
    return hold_lease(store, name, "erasing texts", wait=True, patience_s=PATIENCE_S) if name else nullcontext()


def _set_aside(store: Store, plan: erasing.Plan) -> list[Path]:
    """Return the files of what could not be read, whosever texts it is: lines of the spool of a plan's owners and, if
    traces or people in them were named, requests of the receiver."""
    is_traced = {"trace", "session", "user"} & {*plan.kind.split("+")} or plan.keys.get("about", {}).get("observations")
    folders = [*plan.owners, *([RECEIVED] if is_traced and plan.kind != RULE else [])]
    return [path for name in folders for path in sorted((spool_folder(store) / name).glob("*.damaged"))]


def _left_behind(store: Store) -> list[Path]:
    """Return the temporary files that killed processes have left: they have texts too."""
    if not store.layout.is_local:
        return []
    found = []
    for path in Path(store.layout.root).glob("*/*/*/.*.tmp"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > LEFT_S:
                found.append(path)
    return found


def _erased(plan: erasing.Plan, erasure_id: str | None, set_aside: int = 0, elsewhere: int = 0) -> Erased:
    return Erased(
        erasure_id=erasure_id,
        rows=plan.counts,
        snapshots=plan.snapshots,
        owners=plan.owners,
        set_aside=set_aside,
        elsewhere=elsewhere,
    )


def old_groups(store: Store, until: datetime, keep_last: int) -> Groups:
    """Return the run groups all of whose experiments were started before, with nothing that refers to one of them."""
    (rows,) = ask(store, (_OLD, [until, keep_last]))
    groups: Groups = grouped(rows)
    folder = spool_folder(store)
    waiting = {path.parent.name for pattern in ("*/*.jsonl", f"{BATCHES}/*/*.jsonl") for path in folder.glob(pattern)}
    return {group: members for group, members in groups.items() if waiting.isdisjoint([group, *members])}


def rows_of_groups(store: Store, groups: Groups) -> Counter[str]:
    """Return the number of rows of the groups' experiments, by table."""
    experiments = [experiment for members in groups.values() for experiment in members]
    owners = {**dict.fromkeys(OF_EXPERIMENT, experiments), "verdicts": [*groups]}
    within = "in (select unnest(?::varchar[]))"
    queries = [
        (f"select '{table}', count(*) from source.{table} where {TABLES[table].owner} {within}", [of])
        for table, of in owners.items()
    ]
    found = ask(store, *queries)
    return Counter({table: count for ((table, count),) in found if count})


def remove_groups(store: Store, groups: Groups) -> tuple[Counter[str], list[str]]:
    """Remove run groups that no process works on; the lease of packing is held.

    Return the number of removed rows by table, and the removed experiments.
    """
    rows, removed = Counter[str](), list[str]()
    for group, members in groups.items():
        with suppress(InputError), hold_lease(store, group, f"removing {group}", wait=False):
            rows += rows_of_groups(store, {group: members})
            _remove(store, "verdicts", [group])
            for table in OF_EXPERIMENT:
                _remove(store, table, members)
            remove_manifests(store.layout, store.filesystem, {group, *members})
            removed += members
    return rows, sorted(removed)


def _remove(store: Store, table: str, owners: Collection[str]) -> None:
    """Remove the rows of owners: packed ones first, which count once an owner has no file of its own."""
    remove_packed(store, table, owners)
    for owner in owners:
        for folder in (store.layout.open_folder(table, owner), store.layout.sealed(table, owner).rpartition("/")[0]):
            with storage_errors(folder), suppress(FileNotFoundError):
                store.filesystem.rm(folder, recursive=True)
            if store.layout.is_local:
                with suppress(OSError):
                    Path(folder).rmdir()


_OLD = """
with ranked as (
    select *, row_number() over (partition by name order by started_at desc, experiment_id) as newest
    from source.experiments
), referred as (
    select experiment_id as id from source.baselines
    union all select candidate_experiment_id from source.decisions
    union all select baseline_experiment_id from source.decisions
    union all select unnest(experiments) from source.comparison_sets
    union all select experiment_id from source.labels
    union all select e.experiment_id from source.verdicts v
              join source.experiments e on e.experiment_id in (v.candidate_experiment_id, v.baseline_experiment_id)
              where v.run_group is distinct from e.run_group
    union all select unnest(regexp_extract_all(spec, '"experiment": ?"([^"]+)"', 1)) from source.experiments
), kept as (
    select distinct run_group from ranked
    where started_at >= $1 or newest <= $2 or experiment_id in (select id from referred where id is not null)
)
select run_group, experiment_id from ranked where run_group not in (select run_group from kept) order by 1, 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one rule found too old: rows that lose texts or are removed, by table."""

    rule: str
    rows: Mapping[str, int]
    experiments: Sequence[str] = ()  # those that are removed


def retain(store: Store, spec: RetentionSpec, by: str | None, elsewhere: Elsewhere = nowhere) -> list[Retained]:
    """Apply the rules. What a process works on at the moment waits for the next time.

    Interrupted erasures are finished first. Raise StorageError for a damaged file, with nothing changed by the rules.
    """
    with hold_lease(store, PACKING, "applying rules of retention", wait=True):
        _finish(store, elsewhere)
        check_sound(store)
        done = []
        for rule, subjects in _texts(store, spec, now()):
            try:
                rows = _erase_planned(store, erasing.new_plan(RULE, rule, by, subjects), elsewhere).rows
            except InputError as error:  # a process has just begun to work on some of it
                print_note(f"{rule}: put off until the next time: {error}")
                rows = {}
            done.append(Retained(rule=rule, rows=rows))
        for rule, groups in _groups(store, spec):
            counts, removed = remove_groups(store, groups)
            if removed:
                plan = erasing.new_plan(RULE, rule, by, erasing.Subjects(owners=removed))
                _record(store, replace(plan, counts=counts))
            done.append(Retained(rule=rule, rows=counts, experiments=removed))
        return done


def would_retain(store: Store, spec: RetentionSpec) -> list[Retained]:
    """Return what `retain` would do. Nothing is written."""
    check_sound(store)
    found = [
        Retained(rule=rule, rows=_counted(store, erasing.new_plan(RULE, rule, None, subjects)).counts)
        for rule, subjects in _texts(store, spec, now())
    ]
    for rule, groups in _groups(store, spec):
        experiments = sorted(experiment for members in groups.values() for experiment in members)
        found.append(Retained(rule=rule, rows=rows_of_groups(store, groups), experiments=experiments))
    return found


def _groups(store: Store, spec: RetentionSpec) -> list[tuple[str, Groups]]:
    """Return the run groups that are too old, by the rule, if there is one."""
    if spec.experiments_days is None:
        return []
    groups = old_groups(store, now() - timedelta(days=spec.experiments_days), spec.keep_last)
    return [(f"experiments_days: {spec.experiments_days}", groups)]


def _texts(store: Store, spec: RetentionSpec, at: datetime) -> list[tuple[str, erasing.Subjects]]:
    """Return the rows whose texts are too old, by rule."""
    found = []
    if spec.trace_texts_days is not None:
        subjects = erasing.trace_rows(store, _old_traces(store, at - timedelta(days=spec.trace_texts_days)))
        found.append((f"trace_texts_days: {spec.trace_texts_days}", subjects))
    if spec.call_texts_days is not None:
        subjects = _old_calls(store, at - timedelta(days=spec.call_texts_days))
        found.append((f"call_texts_days: {spec.call_texts_days}", subjects))
    return found


def _old_traces(store: Store, until: datetime) -> list[str]:
    """Return the traces whose last observation began before, of those that still have texts.

    An observation without a known time is as old as its record.
    """
    query = f"""select trace_id from source.observations group by trace_id
                having max(case when day > '{FIRST_DAY}' then started_at else recorded_at end) < ?
                       and bool_or(attributes not like '%"{ATTRIBUTE}"%') order by 1"""
    (rows,) = ask(store, (query, [until]))
    return [trace for (trace,) in rows]


def _old_calls(store: Store, until: datetime) -> erasing.Subjects:
    query = f"""select c.call_id, c.experiment_id, coalesce(e.run_group, c.experiment_id)
                from source.calls c left join source.experiments e using (experiment_id)
                where c.started_at < ? and not starts_with(c.request, '{{"{FIELD}":"(erased ') order by 1"""
    (rows,) = ask(store, (query, [until]))
    held = {*held_leases(store)}
    found = [(call, owner, erasing.evaluation_of(owner) or group) for call, owner, group in rows]
    free = [call for call in found if call[2] not in held]
    leases = {owner: lease for _, owner, lease in free if owner}
    return erasing.Subjects(
        keys={"about": {"calls": [(call,) for call, *_ in free]}}, owners=sorted(leases), leases=leases
    )
