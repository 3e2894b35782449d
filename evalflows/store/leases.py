"""The lease of an object store: an object that names its holder, who renews it until the work is done.

If its holder dies, it expires. It is created only if there is none, and replaced only in the version that was read, so
of several processes one has it. If the server ignores such conditions, a process that writes a lease waits and reads it
back: of several, the one that wrote last has it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from evalflows.specs.errors import StorageError
from evalflows.store.leases.holder import UNKNOWN, Holder, from_bytes, has_ended, this_process, to_bytes
from evalflows.store.object_store import ObjectFiles
from evalflows.store.parquet_files import storage_errors
from evalflows.store.records import now

RENEW_S = 10.0
"""Seconds from one renewal to the next."""

EXPIRY_S = 60.0
"""Seconds after the last renewal until the lease may be taken over."""

SETTLE_S = 1.0
"""Seconds until a lease that was written without a condition is read back."""


class _Written(NamedTuple):
    """A lease as it was read."""

    body: bytes
    version: str

    @property
    def holder(self) -> Holder:
        return from_bytes(self.body)[0]

    @property
    def is_fresh(self) -> bool:
        """Whether it was renewed in time, by this clock. A time far ahead proves as little as one long past."""
        renewed_at: datetime | None = from_bytes(self.body)[1]
        return renewed_at is not None and abs((now() - renewed_at).total_seconds()) < EXPIRY_S

    @property
    def has_ended(self) -> bool:
        return has_ended(self.body)


class ObjectLease:
    """A lease that is an object."""

    poll_s = 2.0

    def __init__(self, fs: ObjectFiles, path: str, on_loss: Callable[[], object]) -> None:
        self._fs, self._path, self._on_loss = fs, path, on_loss
        self._own: Holder | None = None
        self._version: str | None = None
        self._is_lost = False
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> Holder | None:
        """Take the lease. Return None, or who has it. Raise StorageError if it cannot be read or written.

        A lease that has expired by this clock is watched first, in case its holder has another clock; one whose holder
        was a process of this machine that has ended is free.
        """
        own = this_process()
        with storage_errors(self._path):
            before = self._read()
            if before is not None and not before.has_ended and (before.is_fresh or self._is_renewed(before)):
                return before.holder
            self._version = before.version if before is not None else None
            if not self._write(own):
                there = self._read()
                return there.holder if there is not None else UNKNOWN
        self._own = own
        self._thread = threading.Thread(target=self._renew, args=(own,), name="evalflows-lease", daemon=True)
        self._thread.start()
        return None

    def holder(self) -> Holder | None:
        """Return who has the lease, without taking it; None if it is free or has expired."""
        with storage_errors(self._path):
            there = self._read()
        return there.holder if there is not None and there.is_fresh and not there.has_ended else None

    def check(self) -> None:
        """Raise StorageError if the lease was lost: nobody renewed it in time, and another process may work now."""
        if self._is_lost:
            raise StorageError(f"{self._path}: the lease was lost, so another process may have gone on with the work")

    def release(self) -> None:
        """Stop renewing the lease and remove it, unless another process has it by now."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError, StorageError):  # then it expires
            if self._own is not None and self._is_own(self._own):
                self._fs.rm_file(self._path)
        self._own = None

    def _write(self, own: Holder) -> bool:
        """Write the lease in place of the version that was read. Return whether this process has it then."""
        if self._fs.honours_conditions():
            self._version = self._fs.put_if(self._path, to_bytes(own), self._version)
            return self._version is not None or self._is_own(own)  # a repeated request refuses what it has written
        self._fs.pipe_file(self._path, to_bytes(own))
        time.sleep(SETTLE_S)
        return self._is_own(own)

    def _renew(self, own: Holder) -> None:
        renewed = time.monotonic()
        while not self._released.wait(RENEW_S):
            with suppress(Exception):  # the object store may be back in time
                if not self._is_own(own) or not self._write(own):
                    break
                renewed = time.monotonic()
            if time.monotonic() - renewed > EXPIRY_S - RENEW_S:
                break
        else:
            return
        self._is_lost = True
        self._on_loss()

    def _is_own(self, own: Holder) -> bool:
        """Whether the lease is this one still. Its version is that to replace then."""
        there = self._read()
        if there is None or there.holder.token != own.token:
            return False
        self._version = there.version
        return True

    def _is_renewed(self, before: _Written) -> bool:
        """Watch a lease for more than two renewals. Return whether it has changed, and is still there."""
        deadline = time.monotonic() + 2.5 * RENEW_S
        while time.monotonic() < deadline:
            time.sleep(min(self.poll_s, RENEW_S / 2))
            there = self._read()
            if there is not None and there.body != before.body:
                return True
        return False

    def _read(self) -> _Written | None:
        try:
            return _Written(*self._fs.read(self._path))
        except FileNotFoundError:
            return None
