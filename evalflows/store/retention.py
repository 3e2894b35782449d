"""Erasing the texts of examples, traces or people everywhere in a store, while figures stay."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.compaction import LABELS
from evalflows.store.erasing.files import FileEraser
from evalflows.store.erasing.plan import Plan, keep_plan, new_plan, plans, remove_plan
from evalflows.store.erasing.selection import Selection, hashed, is_of
from evalflows.store.erasing.subjects import Subjects, subjects_of
from evalflows.store.file_states import state_of, states_of
from evalflows.store.layout import StoredFile
from evalflows.store.leases.lease import held_leases, leased, refuse_if_in_use
from evalflows.store.manifests import check_written
from evalflows.store.observations import FEEDBACK, PATIENCE_S
from evalflows.store.observations import LEASE as OBSERVATIONS
from evalflows.store.packing import LEASE as PACKING
from evalflows.store.parquet import Store
from evalflows.store.records import ErasureRow, to_json
from evalflows.store.spool import RECEIVED, recover, spool_folder

LEFT_S = 600.0
"""Seconds after which a temporary file is one that a killed process has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was erased, or would be: the number of rows that lose texts, by table."""

    erasure_id: str | None  # None if nothing was written
    rows: Mapping[str, int]
    snapshots: Sequence[str]
    owners: Sequence[str]
    set_aside: int = 0  # files with lines of the spool that could not be read, which are removed
    finished: Sequence[str] = ()  # earlier erasures that had been interrupted


def erase(store: Store, selection: Selection, erased_by: str | None) -> Erased:
    """Erase what a selection names. Erasures that were interrupted are finished first.

    Raise InputError if a process works on an experiment or a comparison with such rows, and StorageError for a damaged
    file, both with nothing erased, and StorageError if a file cannot be written: erase again to finish.
    """
    with leased(store, PACKING, "erasing texts", wait=True):
        finished = finish_planned(store)
        _recover_spools(store)
        check_sound(store)
        subjects = subjects_of(store, selection)
        plan = new_plan("+".join(selection.kinds), hashed(selection.text), erased_by, **_fields(subjects, selection))
        done = erase_planned(store, plan)
    return replace(done, finished=[one.erasure_id for one in finished if one.erasure_id is not None])


def finish(store: Store) -> list[Erased]:
    """Finish the erasures that were interrupted. Raise StorageError as `erase`."""
    with leased(store, PACKING, "erasing texts", wait=True):
        return finish_planned(store)


def finish_planned(store: Store) -> list[Erased]:
    """Do the same; the lease of packing is held."""
    return [_carry_out(store, plan) for plan in plans(store)]


def earlier(store: Store, selection: Selection) -> tuple[str, datetime] | None:
    """Return the newest erasure of the same selection, and when it was; None if there is none."""
    kind = "+".join(selection.kinds)
    query = "select erasure_id, recorded_at, selector_hash from source.erasures where kind = ? order by 2 desc"
    rows = store.query(query, [kind])
    return next(((name, at) for name, at, digest in rows if is_of(selection.text, digest)), None)


def would_erase(store: Store, selection: Selection) -> Erased:
    """Return what `erase` would do, by the rows that are in files. Nothing is written."""
    check_sound(store)
    subjects = subjects_of(store, selection)
    plan = new_plan("", "", None, **_fields(subjects, selection))
    return _erased(with_counts(store, plan), None)


def erase_planned(store: Store, plan: Plan) -> Erased:
    """Erase the rows of a plan; the lease of packing is held. Raise InputError and StorageError as `erase`."""
    plan = with_counts(store, plan)
    if not plan.counts:
        return _erased(plan, None)
    keep_plan(store, plan)
    try:  # whoever takes a lease from now on sees the plan: see `refuse_erased`
        for name in sorted({*plan.leases.values()} & {*held_leases(store)}):
            refuse_if_in_use(store, name, f"{name}, which has rows to erase")
    except BaseException:
        remove_plan(store, plan)
        raise
    return _carry_out(store, plan)


def _carry_out(store: Store, plan: Plan) -> Erased:
    """Erase the rows of a plan in all files, also in those that others write meanwhile, and end the erasure."""
    eraser, seen, damage = FileEraser(store, plan), set[tuple[str, object]](), list[StorageError]()
    while todo := [file for file in _files(store, eraser.tables) if (file.path, _state(store, file)) not in seen]:
        for file in todo:
            try:
                with _lease_of(store, file, plan):
                    _erase_file(store, eraser, file)
            except StorageError as error:
                damage.append(error)
            seen.add((file.path, _state(store, file)))
    if damage:
        more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
        raise StorageError(f"{damage[0]}{more}; texts are left there: erase again to finish {plan.erasure_id}")
    set_aside = _remove_set_aside(store, plan)
    _remove_temporary(store)
    store.publish("erasures", plan.erasure_id, [_row(plan)])
    remove_plan(store, plan)
    return _erased(plan, plan.erasure_id, set_aside)


def check_sound(store: Store) -> None:
    """Raise StorageError for a damaged file, since nobody can say whose texts are in it, and for one that no run wrote,
    since it would be written again as one of ours."""
    layout, fs = store.layout, store.filesystem
    check_written(layout, fs, [path for path in sorted(states_of(layout, fs)) if StoredFile.at(path)])


def with_counts(store: Store, plan: Plan) -> Plan:
    """Return a plan with the number of rows that have texts to erase, by table."""
    eraser, counts = FileEraser(store, plan), Counter[str]()
    for file in _files(store, eraser.tables):
        with suppress(FileNotFoundError):
            counts[file.table] += eraser.count(file)
    return replace(plan, counts={table: count for table, count in sorted(counts.items()) if count})


def _erase_file(store: Store, eraser: FileEraser, file: StoredFile) -> None:
    """Erase texts in a file, unless it has gone: its rows are in another one now."""
    with suppress(FileNotFoundError):
        eraser.erase(file)


def _files(store: Store, tables: Collection[str]) -> list[StoredFile]:
    """Return the files of tables, those of examples first: whoever starts on them sees that they were erased."""
    paths = states_of(store.layout, store.filesystem, tables)
    files = [file for path in sorted(paths) if (file := StoredFile.at(path))]
    return sorted(files, key=lambda file: file.table != "examples")


def _state(store: Store, file: StoredFile) -> object:
    return state_of(store.layout, store.filesystem, file.path)


def _lease_of(store: Store, file: StoredFile, plan: Plan) -> AbstractContextManager[object]:
    """Hold the lease of those who replace a file. Packed ones are only replaced under the lease of packing."""
    if file.table == "observations" or file.owner.startswith(FEEDBACK):
        name = OBSERVATIONS
    elif file.table == "labels":
        name = LABELS
    else:
        name = plan.leases.get(file.owner, "")
    return leased(store, name, "erasing texts", wait=True, patience_s=PATIENCE_S) if name else nullcontext()


def _recover_spools(store: Store) -> None:
    """Write what killed processes have left in the spool as parts, so that it is found."""
    for folder in sorted({path.parent for path in spool_folder(store).glob("*/*.jsonl")}):
        if folder.name != RECEIVED:
            recover(store, folder.name)


def _remove_set_aside(store: Store, plan: Plan) -> int:
    """Remove lines of the spool that could not be read, whosever texts they are. Return how many files."""
    paths = [path for owner in plan.owners for path in (spool_folder(store) / owner).glob("*.damaged")]
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def _remove_temporary(store: Store) -> None:
    """Remove the temporary files that killed processes have left: they have texts too."""
    if store.layout.is_local:
        for path in Path(store.layout.root).glob("*/*/*/.*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()


def _fields(subjects: Subjects, selection: Selection) -> dict[str, Any]:
    return {
        "keys": subjects.keys,
        "written": subjects.written,
        "owners": sorted(subjects.owners),
        "leases": subjects.leases,
        "snapshots": sorted(subjects.snapshots),
        "kept": [*selection.kept],
    }


def _row(plan: Plan) -> ErasureRow:
    return ErasureRow(
        erasure_id=plan.erasure_id,
        kind=plan.kind,
        selector_hash=plan.selector_hash,
        erased_by=plan.erased_by,
        rows=to_json(plan.counts),
        snapshots=[*plan.snapshots],
        owners=[*plan.owners],
        kept=[*plan.kept],
        recorded_at=plan.recorded_at,
    )


def _erased(plan: Plan, erasure_id: str | None, set_aside: int = 0) -> Erased:
    return Erased(
        erasure_id=erasure_id, rows=plan.counts, snapshots=plan.snapshots, owners=plan.owners, set_aside=set_aside
    )
