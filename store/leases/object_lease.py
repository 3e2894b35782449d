"""The lease of an object store: an object that names its holder, who renews it until the work is done.

If its holder dies, it expires. Object stores cannot replace an object only if it is unchanged, so a process that writes
a lease waits and reads it back: of several, the one that wrote last has it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import fsspec

from evalflows.specs.errors import StorageError
from evalflows.store.leases.holder import Holder, from_bytes, this_process, to_bytes
from evalflows.store.parquet_files import storage_errors
from evalflows.store.records import now

RENEW_S = 10.0
"""Seconds from one renewal to the next."""

EXPIRY_S = 60.0
"""Seconds after the last renewal until the lease may be taken over."""

SETTLE_S = 1.0
"""Seconds until a written lease is read back."""


class ObjectLease:
    """A lease that is an object."""

    poll_s = 2.0

    def __init__(self, fs: fsspec.AbstractFileSystem, path: str, on_loss: Callable[[], object]) -> None:
        self._fs, self._path, self._on_loss = fs, path, on_loss
        self._own: Holder | None = None
        self._is_lost = False
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> Holder | None:
        """Take the lease. Return None, or who has it. Raise StorageError if it cannot be read or written.

        A lease that has expired by this clock is watched first, in case its holder has another clock.
        """
        with storage_errors(self._path):
            before = self._read()
            if before is not None and (_is_fresh(before) or self._is_renewed(before)):
                return from_bytes(before)[0]
            own = this_process()
            if before is None:
                self._create(own)
            else:
                self._fs.pipe_file(self._path, to_bytes(own))
            time.sleep(SETTLE_S)
            holder, _ = from_bytes(self._read() or b"")
        if holder.token != own.token:
            return holder
        self._own = own
        self._thread = threading.Thread(target=self._renew, args=(own,), name="evalflows-lease", daemon=True)
        self._thread.start()
        return None

    def holder(self) -> Holder | None:
        """Return who has the lease, without taking it; None if it is free or has expired."""
        with storage_errors(self._path):
            body = self._read()
        return from_bytes(body)[0] if body is not None and _is_fresh(body) else None

    def check(self) -> None:
        """Raise StorageError if the lease was lost: nobody renewed it in time, and another process may work now."""
        if self._is_lost:
            raise StorageError(f"{self._path}: the lease was lost, so another process may have gone on with the work")

    def release(self) -> None:
        """Stop renewing the lease and remove it, unless another process has it by now."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError):  # then it expires
            if self._own is not None and self._is_own(self._own):
                self._fs.rm_file(self._path)
        self._own = None

    def _create(self, own: Holder) -> None:
        """Create the object, only if there is none where the file system can do so in one step."""
        with suppress(FileExistsError):
            try:
                self._fs.pipe_file(self._path, to_bytes(own), mode="create")
            except (TypeError, ValueError, NotImplementedError):
                self._fs.pipe_file(self._path, to_bytes(own))

    def _renew(self, own: Holder) -> None:
        renewed = time.monotonic()
        while not self._released.wait(RENEW_S):
            with suppress(Exception):  # the object store may be back in time
                if not self._is_own(own):
                    break
                self._fs.pipe_file(self._path, to_bytes(own))
                renewed = time.monotonic()
            if time.monotonic() - renewed > EXPIRY_S - RENEW_S:
                break
        else:
            return
        self._is_lost = True
        self._on_loss()

    def _is_own(self, own: Holder) -> bool:
        return from_bytes(self._read() or b"")[0].token == own.token

    def _is_renewed(self, before: bytes) -> bool:
        """Watch a lease for more than two renewals. Return whether it has changed, and is still there."""
        deadline = time.monotonic() + 2.5 * RENEW_S
        while time.monotonic() < deadline:
            time.sleep(min(self.poll_s, RENEW_S / 2))
            body = self._read()
            if body is not None and body != before:
                return True
        return False

    def _read(self) -> bytes | None:
        self._fs.invalidate_cache()
        try:
            return bytes(self._fs.cat_file(self._path))
        except FileNotFoundError:
            return None


def _is_fresh(body: bytes) -> bool:
    """Whether the lease was renewed in time, by this clock. A time far ahead proves as little as one long past."""
    renewed_at: datetime | None = from_bytes(body)[1]
    return renewed_at is not None and abs((now() - renewed_at).total_seconds()) < EXPIRY_S
