"""Find experiments and comparisons by id, prefix or name."""

from __future__ import annotations  # types of libraries that are imported when first used

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from evalflows.specs.errors import InputError, NotFoundError, StorageError, names_to_choose
from evalflows.specs.metric_names import TRIAL
from evalflows.store.records import ExperimentRow
from evalflows.store.schemas import TABLES
from evalflows.store.sql import ask_records, fields_of
from evalflows.store.store import Store

_NAMED = "experiments where ? in (experiment_id, run_group, name, spec ->> 'name')"

_EXPERIMENTS = """select experiment_id, name, run_group, spec ->> 'name'
                  from source.experiments order by started_at desc, target"""


def find_experiments(store: Store, reference: str, *, just_one: bool = False) -> list[str]:
    """Return the ids of the experiments that a reference means; with `just_one`, exactly one.

    A reference is an id, a unique prefix of one, a run group (all of its experiments), a unique name, a name (the
    newest experiment of that name), or a spec's name (its newest run group). `NAME~1` is the run before the newest of a
    name, `NAME~2` that before it. Raise InputError if it means none, or too many, and StorageError if it may mean one
    whose files are damaged.
    """
    rows = store.query(_EXPERIMENTS)
    name, back = name_and_age(reference)
    for exact in (
        [row[0] for row in rows if row[0] == reference],
        [row[0] for row in reversed(rows) if row[2] == reference],
        [row[0] for row in rows if unique_name(row[1], row[0]) == reference],
        _run_named(rows, reference, 0),
        _run_named(rows, name, back),
    ):
        if len(exact) > 1 and just_one:
            names = ", ".join(f"{row[1]}~{back}" if back else row[1] for row in rows if row[0] in exact)
            raise InputError(f"experiment {reference!r}: got {len(exact)} experiments, wanted one of: {names}")
        if exact:
            return exact
    if back and (runs := runs_named(store, name)):
        of_newest = names_of(store, _run_named(rows, name, 0))
        wanted = f"{name!r}" if runs == 1 else f"{name!r} to '{name}~{runs - 1}'"
        wanted = f"one of: {', '.join(of_newest)}" if just_one and len(of_newest) > 1 else wanted
        are = "is only one run" if runs == 1 else f"are only {runs} runs"
        raise NotFoundError(f"experiment {reference!r}: there {are} named {name!r}, wanted {wanted}")
    if store.query("select 1 from source.watermarks where name = $1 limit 1", [reference]):
        where = "its scores and labels are in the views trace_scores and trace_labels"
        raise NotFoundError(f"experiment {reference!r}: got a trace evaluation, wanted an experiment; {where}")
    return [_by_prefix("experiment", store, reference, rows, "which has no experiment")]


def find_trace_evaluation(store: Store, reference: str) -> tuple[str, str] | None:
    """Return the id and the name of the trace evaluation with this id or name; None if there is none, or if an
    experiment has the name."""
    query = """select evaluation_id, name from source.watermarks where $1 in (evaluation_id, name)
               order by evaluation_id = $1 desc limit 1"""
    rows = store.query(query, [reference])
    return rows[0] if rows and not _has(store, _NAMED, reference) else None


def unique_name(name: str, experiment: str) -> str:
    """Return an experiment's name with the end of its id, which tells it from others of that name."""
    return f"{name}-{experiment[-8:]}"


def name_and_age(reference: str) -> tuple[str, int]:
    """Return the name in a reference, and how many runs of that name are newer: 1 in `NAME~1`, else 0."""
    found = re.fullmatch(r"(.+)~([0-9]{1,6})", reference, re.DOTALL)
    return (found[1], int(found[2])) if found else (reference, 0)


def _run_named(rows: Sequence[tuple[Any, ...]], name: str, back: int) -> list[str]:
    """Return the experiment of a name, else all of a run of a spec's name; rows are newest first."""
    experiments = [row[0] for row in rows if row[1] == name][back : back + 1]
    groups = [*dict.fromkeys(row[2] for row in rows if row[3] == name)][back : back + 1]
    return experiments or [row[0] for row in reversed(rows) if row[2] in groups]


def find_comparison(store: Store, reference: str) -> str:
    """Return the id of the comparison that a reference means.

    A reference is an id, a unique prefix of one, or a name (the newest comparison of that name). Raise InputError if it
    means none, or more than one.
    """
    rows = store.query("select comparison_id, name from source.comparison_sets order by started_at desc, 1 desc")
    exact = [row[0] for row in rows if row[0] == reference] or [row[0] for row in rows if row[1] == reference]
    return exact[0] if exact else _by_prefix("comparison", store, reference, rows, "which has no comparison")


def _by_prefix(kind: str, store: Store, reference: str, rows: list[tuple[Any, ...]], none: str) -> str:
    """Return the only id with this prefix; rows are (id, name, …). Raise InputError if there is none, or several."""
    matches = [row[0] for row in rows if row[0].startswith(reference)]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise InputError(f"{kind} {reference!r}: got the prefix of {len(matches)} ids, wanted a longer one")
    check_left_out(store, f"{kind} {reference!r}", f"{kind}_id")
    name, _ = name_and_age(reference)
    wanted = names_to_choose(name, (row[1] for row in rows), (row[3] for row in rows if len(row) > 3 and row[3]))
    raise NotFoundError(
        f"{kind} {reference!r}: not in {store.layout.root}, {f'wanted an id or {wanted}' if rows else none}"
    )


def runs_named(store: Store, name: str) -> int:
    """Return how many runs have experiments, or a spec, of this name."""
    return len({row[2] for row in store.query(_EXPERIMENTS) if name in (row[1], row[3])})


def check_left_out(store: Store, what: str, *columns: str) -> None:
    """Raise StorageError if owners in these columns were left out as damaged: one of them may be what was not found."""
    for damage in store.left_out():
        if TABLES[damage.file.table].owner in columns:
            raise StorageError(f"{what}: not among those that can be read; {damage.error}")


def names_of(store: Store, identities: Sequence[str]) -> list[str]:
    """Return the names of experiments, in their order."""
    query = "select experiment_id, name from source.experiments where list_contains(?, experiment_id)"
    names: dict[str, str] = dict(store.query(query, [list(identities)]))
    return [names[identity] for identity in identities]


def newest_finished(store: Store) -> list[str]:
    """Return the finished experiments of the newest run group that has any. Raise InputError if there are none."""
    query = """select experiment_id, run_group from source.experiments where state = 'completed'
               order by started_at desc, target"""
    rows = store.query(query)
    if not rows:
        raise NotFoundError(f"{store.layout.root}: got no finished experiment, wanted at least one")
    return [identity for identity, group in rows if group == rows[0][1]]


def newest_on(store: Store, dataset: str | None) -> str | None:
    """Return the newest experiment on the dataset of a name, by default on any; None if there is none."""
    query = """select experiment_id from source.experiments where $1 is null or dataset_name = $1
               order by started_at desc, experiment_id limit 1"""
    rows = store.query(query, [dataset])
    return rows[0][0] if rows else None


def newest_complete(store: Store, spec_name: str) -> str | None:
    """Return the newest complete experiment of a spec's name, by id, trials excepted; None if there is none."""
    query = """select experiment_id from source.experiments
               where state = 'completed' and spec ->> 'name' = ? and not list_contains(tags, ?)
               order by started_at desc, target limit 1"""
    rows = store.query(query, [spec_name, TRIAL])
    return rows[0][0] if rows else None


def newest_start(
    store: Store, table: str, names: Sequence[str], spec_name: str, run_key: str | None
) -> datetime | None:
    """Return when the newest experiment, or comparison, of some names, a spec's name or a run key was started; None if
    there is none."""
    where = "list_contains(?, name) or spec ->> 'name' = ? or run_key = ?"
    ((newest,),) = store.query(f"select max(started_at) from source.{table} where {where}", [names, spec_name, run_key])
    return newest  # type: ignore[no-any-return]


def run_groups(store: Store, identities: Sequence[str]) -> list[str]:
    """Return the run groups of the experiments."""
    query = "select distinct run_group from source.experiments where list_contains(?, experiment_id) order by 1"
    with store.reading(only={"experiment_id": identities}):
        return [group for (group,) in store.query(query, [list(identities)])]


def experiment_rows(store: Store, identities: Sequence[str]) -> list[ExperimentRow]:
    """Return the rows of experiments, in their order."""
    query = f"select {fields_of(ExperimentRow)} from source.experiments where list_contains(?, experiment_id)"
    rows = {row.experiment_id: row for row in ask_records(store, ExperimentRow, query, [[*identities]])}
    return [rows[identity] for identity in identities]


def example_ids_of(store: Store, snapshot_id: str) -> list[str]:
    """Return the ids of a snapshot's examples, in its order."""
    rows = store.query("select example_id from source.examples where snapshot_id = ? order by position", [snapshot_id])
    return [example_id for (example_id,) in rows]


def rows_of_experiments(store: Store, identities: Sequence[str]) -> dict[str, Collection[str]]:
    """Return, by column, the owners of the rows of experiments and of their examples, as `Store.reading` takes them."""
    query = "select distinct snapshot_id from source.experiments where list_contains(?, experiment_id)"
    with store.reading(only={"experiment_id": identities}):
        snapshots = [snapshot for (snapshot,) in store.query(query, [list(identities)])]
    return {"experiment_id": identities, "snapshot_id": snapshots}


def is_comparison(store: Store, reference: str) -> bool:
    """Return whether a reference means a comparison: an id, a prefix of one, or a name that no experiment has."""
    if reference.startswith("cmp-"):
        return True
    return _has(store, "comparison_sets where name = ?", reference) and not _has(store, _NAMED, reference)


def is_decision(store: Store, reference: str) -> bool:
    """Return whether a reference means a decision: an id, a prefix of one, or the name of a gate that no experiment
    has."""
    if reference.startswith("dec-"):
        return True
    return _has(store, "decisions where gate = ?", reference) and not _has(store, _NAMED, reference)


def _has(store: Store, rows: str, reference: str) -> bool:
    """Return whether there are such rows, of a table below `source`."""
    return bool(store.query(f"select count(*) from source.{rows}", [reference])[0][0])


def comparison_beside(store: Store, experiments: Sequence[str]) -> str | None:
    """Return the comparison that ran as a step of the experiments' run group; None if there was none."""
    groups = run_groups(store, experiments)
    query = "select comparison_id from source.comparison_sets where list_contains(?, run_key) order by started_at desc"
    rows = store.query(query, [groups])
    return str(rows[0][0]) if len(groups) == 1 and rows else None
