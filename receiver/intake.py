"""Keeping entries durably before their requests are answered, as many at a time as have come meanwhile."""

import asyncio
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from evalflows.receiver.journal import Entry, Journal
from evalflows.specs.errors import StorageError

AT_ONCE = 16 << 20
"""Bytes that are written at once, unless one entry has more."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An entry, and who waits until it is on disk."""

    entry: Entry
    answered: asyncio.Future[None]


class Intake:
    """A thread that writes waiting entries to the journal. While one write is synced, the next entries gather."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="evalflows-journal", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread, for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end the thread, if it was started."""
        if self._loop is not None:
            self._queue.put(None)
            self._thread.join()

    async def keep(self, entry: Entry) -> None:
        """Return when the entry is on disk. Raise StorageError if it cannot be written."""
        waiting = _Waiting(entry, asyncio.get_running_loop().create_future())
        self._queue.put(waiting)
        await waiting.answered

    def _run(self) -> None:
        assert self._loop is not None
        is_open = True
        while is_open:
            batch, is_open = self._next()
            if batch:
                error = self._write(batch)
                with suppress(RuntimeError):  # the loop has ended, and nobody waits
                    self._loop.call_soon_threadsafe(_answer, batch, error)

    def _next(self) -> tuple[list[_Waiting], bool]:
        """Return the entries that wait, at least one, and whether more may come."""
        batch: list[_Waiting] = []
        waiting = self._queue.get()
        while waiting is not None:
            batch.append(waiting)
            if self._queue.empty() or sum(len(one.entry.body) for one in batch) >= AT_ONCE:
                return batch, True
            waiting = self._queue.get()
        return batch, False

    def _write(self, batch: Sequence[_Waiting]) -> StorageError | None:
        try:
            self._journal.write([waiting.entry for waiting in batch])
        except StorageError as error:
            return error
        return None


def _answer(batch: Sequence[_Waiting], error: StorageError | None) -> None:
    for waiting in batch:
        if waiting.answered.done():  # the client has gone
            continue
        if error is None:
            waiting.answered.set_result(None)
        else:
            waiting.answered.set_exception(error)
