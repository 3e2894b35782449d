"""Folding: a thread that writes the journal's entries as rows of the store, about once a second."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from evalflows.receiver.journal import Entry, Journal, Taken
from evalflows.receiver.request_bodies import telemetry_of
from evalflows.specs.errors import StorageError, describe
from evalflows.specs.safe_text import print_note
from evalflows.store.compaction import Compaction
from evalflows.store.observations import day_of, seal_past_days, write_observations
from evalflows.store.parquet import Store
from evalflows.store.records import now
from evalflows.telemetry.parsed import Telemetry

EVERY_S = 1.0
"""Seconds from one fold to the next."""
RETRY_S = 5.0
"""Seconds until the next fold after one that failed."""
RECOVER_S = 30.0
"""Seconds from one look for files of dead receivers to the next."""
COMPACT_S = 5.0
"""Seconds from one look for parts to merge to the next."""
SEAL_S = 3600.0
"""Seconds from one look for past days to seal to the next, and after midnight until the first: some spans are late."""
ROWS_AT_ONCE, BYTES_AT_ONCE = 20_000, 16 << 20
"""What is in memory at once: rows, or bytes of the entries that they come from."""


@dataclass(slots=True)
class _Batch:
    """The rows of some entries."""

    telemetry: Telemetry = field(default_factory=Telemetry)
    size: int = 0

    def add(self, entry: Entry, more: Telemetry) -> None:
        self.telemetry.observations.extend(more.observations)
        self.telemetry.scores.extend(more.scores)
        self.telemetry.labels.extend(more.labels)
        self.size += len(entry.body)

    @property
    def is_full(self) -> bool:
        telemetry = self.telemetry
        rows = len(telemetry.observations) + len(telemetry.scores) + len(telemetry.labels)
        return rows >= ROWS_AT_ONCE or self.size >= BYTES_AT_ONCE

    def write(self, store: Store) -> None:
        telemetry = self.telemetry
        write_observations(store, telemetry.observations, scores=telemetry.scores, labels=telemetry.labels)


class Folding:
    """The thread, and whether its last fold failed."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self._compaction = Compaction(store)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evalflows-folding", daemon=True)
        self._due: dict[Callable[[], None], float] = {}  # when to do again what is not done at each fold
        self.error: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Fold the rest and end the thread. Raise StorageError if the rest could not be written; it is kept."""
        self._stopping.set()
        if self._thread.ident is None:  # stopped before it was started
            self.start()
        self._thread.join()
        if self.error is not None and self._journal.pending:
            raise StorageError(f"{self.error}; what was accepted is kept for the next start")

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._attempt()
            pause = EVERY_S if self.error is None else RETRY_S
            self._stopping.wait(began + pause - time.monotonic())
        self._attempt()
        self._compaction.finish()

    def _attempt(self) -> None:
        """Fold and compact once. Note an error once, until a fold succeeds again."""
        try:
            self._every(RECOVER_S, self._journal.recover)
            self._fold()
            self._every(COMPACT_S, self._compaction.step)
            self._every(SEAL_S, self._seal)
            self.error = None
        except Exception as error:  # the journal keeps what was accepted, and the next fold may succeed
            text = str(error) if isinstance(error, StorageError) else describe(error)
            if self.error is None:
                print_note(f"cannot write to the store, so the journal grows: {text}")
            self.error = text

    def _every(self, period_s: float, work: Callable[[], None]) -> None:
        if time.monotonic() >= self._due.get(work, -math.inf):
            work()
            self._due[work] = time.monotonic() + period_s

    def _seal(self) -> None:
        seal_past_days(self._store, day_of(now() - timedelta(seconds=SEAL_S)))

    def _fold(self) -> None:
        while (taken := self._journal.take()) is not None:
            try:
                for batch in _batches(taken):
                    batch.write(self._store)
                self._journal.remove(taken)
            except BaseException:
                self._journal.give_back(taken)
                raise


def _batches(taken: Taken) -> Iterator[_Batch]:
    batch = _Batch()
    for entry in taken.entries():
        try:
            batch.add(entry, telemetry_of(entry))
        except Exception:  # it was checked before it was accepted, but perhaps by another version
            taken.set_aside(entry.to_bytes())
        if batch.is_full:
            yield batch
            batch = _Batch()
    yield batch
