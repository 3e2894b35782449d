"""Merging the open parts of owners that are still written, so that queries read few files.

Parts of about the same size are merged, so that a row is rewritten only a few times. The merged part is on disk before
the parts that it replaces are removed, and queries use each key once, so a crash between loses and doubles nothing. The
replaced parts stay for a while, for queries that have listed them.
"""

import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from contextlib import suppress

from evalflows.store.leases.lease import leased
from evalflows.store.observations import LEASE, PATIENCE_S
from evalflows.store.open_owners import open_owners
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import storage_errors
from evalflows.store.records import new_id

FAN = 8
"""Parts of one tier that are merged at once."""
SMALLEST, LARGEST = 64 << 10, 64 << 20
"""Bytes of a part below which all are in the first tier, and from which none is merged again."""
GRACE_S = 30.0
"""Seconds that a replaced part stays."""
TABLE = "observations"
LABELS = "labels"
"""The lease of those who merge labels."""


class Compaction:
    """Merges the open days of observations, and knows which parts are to be removed when."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._replaced: deque[tuple[float, str]] = deque()  # when to remove which part

    def step(self) -> None:
        """Merge what is worth it, and remove what was replaced long enough ago."""
        self._remove(time.monotonic())
        for day in open_owners(self._store, TABLE):
            while replaced := merge_similar(self._store, TABLE, day, LEASE, without=self._waiting()):
                self._replaced.extend((time.monotonic() + GRACE_S, part) for part in replaced)

    def finish(self) -> None:
        """Remove all that was replaced."""
        self._remove(math.inf)

    def _waiting(self) -> set[str]:
        """Return the parts that were replaced and are not removed yet."""
        return {path for _, path in self._replaced}

    def _remove(self, until: float) -> None:
        while self._replaced and self._replaced[0][0] <= until:
            _, path = self._replaced.popleft()
            _remove_part(self._store, path)


def merge_similar(
    store: Store, table: str, owner: str, lease: str, *, without: Collection[str] = (), removes: bool = False
) -> Sequence[str]:
    """Write parts of about the same size of an open owner as one, each key once, if there are enough of them.

    Return the parts that this replaces: none if there are too few, or if another process has merged or sealed them.
    Parts `without` do not count. The caller is to remove what was replaced, unless this `removes` it.
    """
    sizes = {path: size for path, size in store.open_parts(table, owner).items() if path not in without}
    if not (parts := _mergeable(sizes)):
        return ()
    with leased(store, lease, f"merging {table}", wait=True, patience_s=PATIENCE_S):
        if store.is_sealed(table, owner) or not {*parts} <= store.open_parts(table, owner).keys():
            return ()
        store.merge_parts(table, owner, new_id("part"), parts)
        for part in parts if removes else ():  # with the lease: others merge only parts that stay until they have
            _remove_part(store, part)
    return parts


def _remove_part(store: Store, path: str) -> None:
    """Remove a part that was replaced. Nothing happens if its owner was sealed meanwhile."""
    with storage_errors(path), suppress(FileNotFoundError):
        store.filesystem.rm_file(path)


def _mergeable(sizes: dict[str, int]) -> list[str]:
    """Return the parts of the lowest tier that has enough of them; none if no tier has."""
    tiers: defaultdict[int, list[str]] = defaultdict(list)
    for path, size in sizes.items():
        if size < LARGEST:
            tiers[int(math.log(max(size, SMALLEST) / SMALLEST, FAN))].append(path)
    full = [tier for tier, parts in tiers.items() if len(parts) >= FAN]
    return sorted(tiers[min(full)]) if full else []
