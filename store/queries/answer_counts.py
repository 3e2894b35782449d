"""How many answers experiments have: for lists, without listing the files of all others."""

from collections.abc import Mapping, Sequence

import duckdb

from evalflows.specs.errors import StorageError
from evalflows.store.catalog import ask
from evalflows.store.layout import files
from evalflows.store.parquet import Store
from evalflows.store.roots import readable_paths

Counts = dict[str, tuple[int, int]]
"""The answered and the failed runs, by experiment id."""


def answer_counts(store: Store, experiments: Sequence[str]) -> Counts:
    """Return the counts of experiments, given by id. The files of sealed ones are read by name, and not verified."""
    sealed = {identity: path for identity in experiments if (path := store.sealed_file("outputs", identity))}
    others = [identity for identity in experiments if identity not in sealed]
    counts = dict.fromkeys(experiments, (0, 0))
    if sealed:
        try:
            counts |= _of_files(store, sealed)
        except (duckdb.Error, StorageError):  # reopened meanwhile, or damaged
            others = list(experiments)
    if others:
        (rows,) = ask(store, (_COUNTS.format(source="outputs"), [others]))
        counts |= _by_experiment(rows)
    return counts


def _of_files(store: Store, sealed: Mapping[str, str]) -> Counts:
    query = _COUNTS.format(source=files(readable_paths(store.filesystem, sorted({*sealed.values()}))))
    with store.cursor() as connection:
        return _by_experiment(connection.execute(query, [[*sealed]]).fetchall())


def _by_experiment(rows: Sequence[tuple[str, int, int]]) -> Counts:
    return {identity: (answered, failed) for identity, answered, failed in rows}


_COUNTS = """
select experiment_id, count(*) filter (status = 'ok'), count(*) filter (status = 'failed')
from {source} where list_contains($1, experiment_id) group by experiment_id
"""
