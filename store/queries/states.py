"""What a running experiment or comparison has done that is not in its parts yet."""

import json
from collections.abc import Iterable
from contextlib import suppress

from evalflows.store.parquet import Store
from evalflows.store.spool import spool_folder

INTERRUPTED = "interrupted"
"""The state, in the views, of what its row calls running and no process works on: cancelled, killed, or crashed."""


def spooled_if_running(store: Store, state: str, owner: str, table: str) -> int:
    """Return how many rows of a table an owner that is running has beside those in its parts; else 0."""
    return spooled_rows(store, owner, (table,)) if state == "running" else 0


def spooled_rows(store: Store, owner: str, tables: Iterable[str]) -> int:
    """Return how many finished rows of these tables a running process on this machine has not yet written as parts."""
    wanted, count = {*tables}, 0
    for path in (spool_folder(store) / owner).glob("*.jsonl"):
        with suppress(OSError), path.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):  # a line that is being written
                    count += json.loads(line.partition(b" ")[2])["table"] in wanted
    return count
