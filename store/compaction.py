"""Merging the open parts of days that are still written, so that queries read few files.

Parts of about the same size are merged, so that a row is rewritten only a few times. The merged part is on disk before
the parts that it replaces are removed, and queries use each key once, so a crash between loses and doubles nothing. The
replaced parts stay for a while, for queries that have listed them.
"""

import math
import time
from collections import defaultdict, deque
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


class Compaction:
    """Merges the open days of observations, and knows which parts are to be removed when."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._replaced: deque[tuple[float, str]] = deque()  # when to remove which part

    def step(self) -> None:
        """Merge what is worth it, and remove what was replaced long enough ago."""
        self._remove(time.monotonic())
        for day in open_owners(self._store, TABLE):
            while (parts := _mergeable(self._sizes(day))) and self._merge(day, parts):
                pass

    def finish(self) -> None:
        """Remove all that was replaced."""
        self._remove(math.inf)

    def _sizes(self, day: str) -> dict[str, int]:
        """Return the parts of a day that were not replaced, with their sizes."""
        replaced = {path for _, path in self._replaced}
        return {path: size for path, size in self._store.open_parts(TABLE, day).items() if path not in replaced}

    def _merge(self, day: str, parts: list[str]) -> bool:
        """Write the rows of parts as one, each key once. Return False if another process has merged or sealed them."""
        store = self._store
        with leased(store, LEASE, "merging observations", wait=True, patience_s=PATIENCE_S):
            if store.is_sealed(TABLE, day) or not {*parts} <= store.open_parts(TABLE, day).keys():
                return False
            store.merge_parts(TABLE, day, new_id("part"), parts)
        remove_at = time.monotonic() + GRACE_S
        self._replaced.extend((remove_at, part) for part in parts)
        return True

    def _remove(self, until: float) -> None:
        while self._replaced and self._replaced[0][0] <= until:
            _, path = self._replaced.popleft()
            with storage_errors(path), suppress(FileNotFoundError):  # its day was sealed meanwhile
                self._store.filesystem.rm_file(path)


def _mergeable(sizes: dict[str, int]) -> list[str]:
    """Return the parts of the lowest tier that has enough of them; none if no tier has."""
    tiers: defaultdict[int, list[str]] = defaultdict(list)
    for path, size in sizes.items():
        if size < LARGEST:
            tiers[int(math.log(max(size, SMALLEST) / SMALLEST, FAN))].append(path)
    full = [tier for tier, parts in tiers.items() if len(parts) >= FAN]
    return sorted(tiers[min(full)]) if full else []
