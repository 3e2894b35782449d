"""The state of an experiment or a comparison as somebody sees it who looks now, not as its row says."""

import json
from collections.abc import Iterable
from contextlib import suppress

from evalflows.store.leases.lease import holder_of
from evalflows.store.parquet import Store
from evalflows.store.spool import spool_folder

INTERRUPTED = "interrupted"
"""The state of what its row calls running, and no process works on: it was cancelled, killed, or crashed."""


def state_now(store: Store, state: str, lease: str) -> str:
    """Return the state, with `interrupted` for what is running according to its row but whose lease nobody has.

    Args:
        store: The store.
        state: The state in the row.
        lease: The run group of an experiment, or the id of a comparison.
    """
    return INTERRUPTED if state == "running" and holder_of(store, lease) is None else state


def seen_now(store: Store, state: str, lease: str, owner: str, table: str) -> tuple[str, int]:
    """Return the state as `state_now` does, and how many rows of a table a running owner has beside those in its
    parts.
    """
    seen = state_now(store, state, lease)
    return seen, spooled_rows(store, owner, (table,)) if seen == "running" else 0


def spooled_rows(store: Store, owner: str, tables: Iterable[str]) -> int:
    """Return how many finished rows of these tables a running process on this machine has not yet written as parts."""
    wanted, count = {*tables}, 0
    for path in (spool_folder(store) / owner).glob("*.jsonl"):
        with suppress(OSError), path.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):  # a line that is being written
                    count += json.loads(line.partition(b" ")[2])["table"] in wanted
    return count
