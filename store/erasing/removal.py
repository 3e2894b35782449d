"""Removing whole experiments that are old and that nothing refers to."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from evalflows.specs.errors import InputError
from evalflows.store.catalog import ask
from evalflows.store.leases.lease import leased
from evalflows.store.manifests import remove_manifests
from evalflows.store.packing import remove_packed
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import storage_errors
from evalflows.store.schemas import EXPERIMENT_TABLES, TABLES
from evalflows.store.spool import spool_folder

OF_EXPERIMENT = ("estimates", *EXPERIMENT_TABLES)
"""The tables of one experiment, in the order of removal: its own row last, by which an interrupted removal goes on."""

Groups = Mapping[str, Sequence[str]]
"""The experiments of run groups."""


def old_groups(store: Store, until: datetime, keep_last: int) -> Groups:
    """Return the run groups all of whose experiments were started before, with nothing that refers to one of them."""
    (rows,) = ask(store, (_OLD, [until, keep_last]))
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for group, experiment in rows:
        groups[group].append(experiment)
    waiting = {path.parent.name for path in spool_folder(store).glob("*/*.jsonl")}  # for `resume`
    return {group: members for group, members in groups.items() if waiting.isdisjoint(members)}


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
        with suppress(InputError), leased(store, group, f"removing {group}", wait=False):
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
