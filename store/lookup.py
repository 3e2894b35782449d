"""Finding an experiment, or a comparison, by what a person calls it."""

from collections.abc import Sequence
from typing import Any

from specs.errors import InputError
from store.parquet import Store


def find_experiments(store: Store, reference: str, *, just_one: bool = False) -> list[str]:
    """The ids of the experiments that a reference means; `just_one` where several are of no use.

    It is an id, the beginning of just one, a run group (all of its experiments), a name (the newest of that name), or a
    spec's name (its newest run group). Raises InputError if it means none, or more than it may.
    """
    rows = store.query(
        """select experiment_id, name, run_group, spec ->> 'name'
           from source.experiments order by started_at desc, target"""
    )
    newest_group = next((row[2] for row in rows if row[3] == reference), None)
    for exact in (
        [row[0] for row in rows if row[0] == reference],
        [row[0] for row in reversed(rows) if row[2] == reference],
        [row[0] for row in rows if row[1] == reference][:1],
        [row[0] for row in reversed(rows) if row[2] == newest_group],
    ):
        if len(exact) > 1 and just_one:
            names = ", ".join(row[1] for row in rows if row[0] in exact)
            raise InputError(f"experiment {reference!r}: means {len(exact)} experiments, wanted one of: {names}")
        if exact:
            return exact
    return [_begins_so("experiment", store, reference, rows, "which is empty")]


def find_comparison(store: Store, reference: str) -> str:
    """The id of the comparison that a reference means.

    It is an id, the beginning of just one, or a name (the newest of that name). Raises InputError if it means none, or
    more than one.
    """
    rows = store.query("select comparison_id, name from source.comparison_sets order by started_at desc, 1 desc")
    exact = [row[0] for row in rows if row[0] == reference] or [row[0] for row in rows if row[1] == reference]
    return exact[0] if exact else _begins_so("comparison", store, reference, rows, "which has no comparison")


def _begins_so(kind: str, store: Store, reference: str, rows: list[tuple[Any, ...]], none: str) -> str:
    """The one id that begins so; each row has its own first, then a name. Raises InputError if none or several do."""
    begin_so = [row[0] for row in rows if row[0].startswith(reference)]
    if len(begin_so) == 1:
        return str(begin_so[0])
    if begin_so:
        raise InputError(f"{kind} {reference!r}: {len(begin_so)} ids begin so, wanted more of it")
    raise InputError(f"{kind} {reference!r}: not in {store.layout.root}, {_known(rows) if rows else none}")


def _known(rows: list[tuple[Any, ...]]) -> str:
    names = list(dict.fromkeys(row[1] for row in rows))
    return f"wanted an id or one of: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"


def run_groups(store: Store, identities: Sequence[str]) -> list[str]:
    """The starts that some experiments are of."""
    query = "select distinct run_group from source.experiments where list_contains(?, experiment_id) order by 1"
    return [group for (group,) in store.query(query, [list(identities)])]


def is_comparison(store: Store, reference: str) -> bool:
    """Whether a reference means a comparison: its id or the beginning of one, or a name that no experiment has."""
    if reference.startswith("cmp-"):
        return True
    experiments = """select count(*) from source.experiments
                     where ? in (experiment_id, run_group, name, spec ->> 'name')"""
    compared = "select count(*) from source.comparison_sets where name = ?"
    is_experiment, is_other = (bool(store.query(query, [reference])[0][0]) for query in (experiments, compared))
    return is_other and not is_experiment


def comparison_beside(store: Store, experiments: Sequence[str]) -> str | None:
    """The comparison that was a step of the start of some experiments, if there was one."""
    groups = run_groups(store, experiments)
    query = "select comparison_id from source.comparison_sets where list_contains(?, run_key) order by started_at desc"
    found = store.query(query, [groups])
    return str(found[0][0]) if len(groups) == 1 and found else None
