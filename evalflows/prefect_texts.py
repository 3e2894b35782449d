"""Erase texts that flow runs have left with the local Prefect server: in its database, in logs, and as results.

States, logs and events quote exceptions, artifacts are pages, and parameters may list a dataset's rows. Nothing says
whose texts these are. So all go that are not of a flow run whose experiments and comparisons, as the store knows, are
about something else. Names, times, types of states and settings stay.
"""

# A server that the user runs is left alone.

import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from evalflows.prefect_server import results_folder
from evalflows.specs import hints
from evalflows.specs.errors import StorageError
from evalflows.specs.home import home_root
from evalflows.store.erasing import Plan
from evalflows.store.retention import RULE
from evalflows.store.store import Store

WAIT_S = 60.0
"""Seconds for which the server may use its database meanwhile."""

_OTHERS = """select flow_run_id from (
        select flow_run_id, experiment_id as owner from source.experiments
        union all select flow_run_id, comparison_id from source.comparison_sets)
    where flow_run_id is not null group by 1 having not bool_or(list_contains(?, owner))"""
"""The flow runs that are about something else than these owners."""

_ENDED = "state_type in ('COMPLETED', 'FAILED', 'CRASHED', 'CANCELLED') and id not in others"
_OF_RUN = "coalesce(flow_run_id, '') not in others"
_OF_TASK = f"task_run_id in (select id from task_run where {_OF_RUN})"
_OF_EVENT = """{} not in (select event_id from event_resources
    where resource_id in (select 'prefect.flow-run.' || flow_run_id from others))"""
_SAID = '"prefect.state-message"'


def _event(column: str, path: str = "$") -> str:
    """Return SQL that erases the texts of an event that stands in a column as JSON."""
    return (
        f"set {column} = json_replace({column}, '{path}.payload', json('{{}}'), '{path}.resource.{_SAID}', :marker)"
        f" where {column} is not null"
    )


_STATEMENTS = (
    ("artifact", f"set data = json_quote(:marker) where data is not null and {_OF_RUN}"),
    ("artifact_collection", f"set data = json_quote(:marker) where data is not null and {_OF_RUN}"),
    ("log", f"set message = :marker where {_OF_RUN}"),
    ("flow_run_state", f"set message = :marker where message <> '' and {_OF_RUN}"),
    ("task_run_state", f"set message = :marker where message <> '' and {_OF_TASK}"),
    ("flow_run_input", f"set value = json_quote(:marker) where {_OF_RUN}"),
    ("flow_run", f"set parameters = json_replace(parameters, '$.spec.dataset.rows', json('[]')) where {_ENDED}"),
    (
        "events",
        f"set payload = '{{}}', resource = json_replace(resource, '$.{_SAID}', :marker) where {_OF_EVENT.format('id')}",
    ),
    (
        "event_resources",
        f"set resource = json_replace(resource, '$.{_SAID}', :marker) where {_OF_EVENT.format('event_id')}",
    ),
    ("automation_bucket", _event("last_event")),
    ("automation_event_follower", _event("follower")),
    ("composite_trigger_child_firing", _event("child_firing", "$.triggering_event")),
)
"""What becomes of each table of the database that has texts."""


def erase_prefect_texts(store: Store, plan: Plan) -> int:
    """Erase the texts of flow runs that may be about what a plan erases. Return how many ended runs these are.

    Rules of retention erase none: they go by age, as the server itself does.

    Raise StorageError if a database cannot be written.
    """
    if plan.kind == RULE:
        return 0
    others = [identity for (identity,) in store.query(_OTHERS, [list(plan.owners)])]
    count = 0
    for folder in sorted(home_root().glob("prefect-*")):  # each version has its own
        if (database := folder / "prefect.db").exists():
            try:
                count += _erase(database, others, f"(erased {plan.at[:10]})")
            except sqlite3.Error as error:
                then = f"{hints.stop_server().code}, then {hints.finish_erasure().code} erases its texts"
                raise StorageError(f"{database}: {error}; {then}") from error
        for log in folder.glob("*.log"):  # their processes append
            os.truncate(log, 0)
    for result in results_folder().glob("*"):  # exceptions, pickled
        result.unlink(missing_ok=True)
    return count


def _erase(path: Path, others: Iterable[str], marker: str) -> int:
    """Erase the texts in a database, and what its file and its log still hold of earlier ones."""
    with closing(sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)) as database:
        known = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
        database.execute("pragma temp_store = memory")
        database.execute("create temp table others (flow_run_id text primary key)")
        database.executemany("insert into others values (?)", [(other,) for other in others])
        database.execute("begin immediate")
        for table, statement in _STATEMENTS:
            if table in known:
                database.execute(f"update {table} {statement}", {"marker": marker} if ":marker" in statement else {})
        (count,) = database.execute(f"select count(*) from flow_run where {_ENDED}").fetchone() if known else (0,)
        database.execute("commit")
        database.execute("vacuum")
        deadline = time.monotonic() + WAIT_S
        while database.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
            if time.monotonic() > deadline:
                raise sqlite3.OperationalError("the server uses its database")
            time.sleep(0.1)
    return int(count)
