"""Finding an experiment by what a person calls it."""

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
    begin_so = [row[0] for row in rows if row[0].startswith(reference)]
    if len(begin_so) == 1:
        return begin_so
    if begin_so:
        raise InputError(f"experiment {reference!r}: {len(begin_so)} ids begin so, wanted more of it")
    raise InputError(f"experiment {reference!r}: not in {store.layout.root}, {_known(rows)}")


def _known(rows: list[tuple[Any, ...]]) -> str:
    names = list(dict.fromkeys(row[1] for row in rows))
    return (
        f"wanted an id or one of: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
        if rows
        else "which is empty"
    )


def run_groups(store: Store, identities: Sequence[str]) -> list[str]:
    """The starts that some experiments are of."""
    query = "select distinct run_group from source.experiments where list_contains(?, experiment_id) order by 1"
    return [group for (group,) in store.query(query, [list(identities)])]
