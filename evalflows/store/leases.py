"""Leases: one process at a time works on the experiments of a run group, or on a comparison.

If its holder dies, it expires. It is created only if there is none, and replaced only in the version that was read, so
of several processes one has it. If the server ignores such conditions, a process that writes a lease waits and reads it
back: of several, the one that wrote last has it.
"""

# Only the lock counts. The operating system frees it when the process ends, however it ends.

import atexit
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import orjson

from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.escaping import print_note
from evalflows.specs.file_locks import try_lock
from evalflows.specs.frozen import dataclass
from evalflows.store.file_systems import storage_errors
from evalflows.store.records import now
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.store.local_files import LocalFiles
    from evalflows.store.object_store import ObjectFiles

TRIES = 5
"""Attempts to lock a file before its holder is named: another process may lock it only to see whether it is free."""

RENEW_S = 10.0
"""Seconds from one renewal to the next."""

EXPIRY_S = 60.0
"""Seconds after the last renewal until the lease may be taken over."""

SETTLE_S = 1.0
"""Seconds until a lease that was written without a condition is read back."""

NAME = "writer"
_IGNORES = "its server ignores If-None-Match and If-Match, so one process at a time may write to it"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lease, and since when."""

    host: str
    pid: int
    since: datetime
    token: str  # tells the leases of one process apart

    def __str__(self) -> str:
        if self.pid == UNKNOWN.pid:
            return "another process"
        return f"process {self.pid} on {self.host}, since {self.since:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def how_to_stop(self) -> str:
        command = f" (`kill {self.pid}`{'' if self.host == os.uname().nodename else f' on {self.host}'})"
        return f"stop it{'' if self.pid in (UNKNOWN.pid, os.getpid()) else command}"


UNKNOWN = Holder("", 0, datetime(1970, 1, 1, tzinfo=UTC), "")
"""A holder that has not written its name yet."""


def this_process() -> Holder:
    return Holder(os.uname().nodename, os.getpid(), now(), secrets.token_hex(8))


def to_bytes(holder: Holder) -> bytes:
    return orjson.dumps(asdict(holder) | {"renewed_at": now(), "machine": _machine()})


def has_ended(body: bytes) -> bool:
    """Return whether the holder was a process of this machine that is no longer there; False if that cannot be told."""
    try:
        entry, here = orjson.loads(body), _machine()
        if here is None or entry.get("machine") != here:
            return False
        stat = Path(f"/proc/{int(entry['pid'])}/stat").read_bytes()
    except FileNotFoundError:
        return True
    except (ValueError, AttributeError, TypeError, OSError):
        return False
    return stat.rpartition(b")")[2].split()[:1] == [b"Z"]  # killed, and nobody has asked how it ended


@cache
def _machine() -> str | None:
    """Return what tells this boot of this machine apart, and containers with process ids of their own."""
    with suppress(OSError):
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return None


def from_bytes(body: bytes) -> tuple[Holder, datetime | None]:
    """Return the holder, and when it renewed the lease; UNKNOWN and None for a body that cannot be read."""
    try:
        entry: Mapping[str, Any] = orjson.loads(body)
        holder = Holder(entry["host"], entry["pid"], datetime.fromisoformat(entry["since"]), entry["token"])
        return holder, datetime.fromisoformat(entry["renewed_at"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN, None


class FileLease:
    """A lease that is a lock on a file."""

    poll_s = 0.2

    def __init__(self, fs: "LocalFiles", path: Path) -> None:
        self._fs, self._path = fs, path
        self._file: IO[bytes] | None = None

    def take(self) -> Holder | None:
        """Take the lease. Return None, or who has it. Raise StorageError if the file cannot be written."""
        holder: Holder | None = UNKNOWN
        for attempt in range(TRIES):
            time.sleep(0.02 if attempt else 0.0)
            with storage_errors(self._path):
                holder = self._try()
            if holder is None:
                break
        return holder

    def holder(self) -> Holder | None:
        """Return who has the lease, without taking it; None if it is free."""
        with storage_errors(self._path), suppress(FileNotFoundError), self._path.open("rb") as file:
            if not try_lock(file, shared=True):
                return from_bytes(file.read())[0]
        return None

    def check(self) -> None:
        """Do nothing: nobody can take over a lock while this process has it."""

    def release(self) -> None:
        """Remove the file and free the lock."""
        if self._file is not None:
            with suppress(OSError):  # the store was removed
                if self._is_current(self._file):
                    self._path.unlink()
            self._fs.locked.discard(self._file)
            self._file.close()
            self._file = None

    def _try(self) -> Holder | None:
        self._path.parent.mkdir(exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        if not try_lock(file):
            file.seek(0)
            holder, _ = from_bytes(file.read())
            file.close()
            return holder
        if not self._is_current(file):  # its holder has just removed it
            file.close()
            return UNKNOWN
        self._file = file
        self._fs.locked.add(file)
        file.truncate(0)
        file.write(to_bytes(this_process()))
        return None

    def _is_current(self, file: IO[bytes]) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        return False


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

    def __init__(self, fs: "ObjectFiles", path: str, on_loss: Callable[[], object]) -> None:
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
            raise StorageError(f"{self._path}: the lease was lost, so another process may have continued the work")

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
            return self._version is not None
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
        """Return whether the lease is this one still. Its version is that to replace then."""
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


def claim(fs: "ObjectFiles", path: str) -> None:
    """Find out whether the server honours conditions; if not, say so, and make this process the only writer.

    A process keeps that until it ends. Raise InputError if another process has it, and StorageError if it was lost. Of
    two that claim it at the same moment, both may miss the other.
    """
    with fs.claiming, storage_errors(fs.root):
        if fs.honours_conditions():
            return
        if fs.writer is None:
            print_note(f"store {fs.root}: {_IGNORES}")
            lease = ObjectLease(fs, path, lambda: None)
            if holder := lease.take():
                raise InputError(
                    f"store {fs.root}: {_IGNORES}: {holder} does; {holder.how_to_stop} or wait for its end"
                )
            fs.writer = lease
            atexit.register(lease.release)
        fs.writer.check()


Lease = FileLease | ObjectLease
"""A lease that this process may take. Threads of one process exclude each other too."""


@contextmanager
def hold_lease(
    store: Store,
    name: str,
    work: str,
    *,
    wait: bool,
    patience_s: float = 0.0,
    on_loss: Callable[[], object] = lambda: None,
) -> Iterator[Lease]:
    """Hold a lease during the block.

    Args:
        store: The store that the lease belongs to.
        name: Id of the run group or the comparison.
        work: What the lease is for, in messages.
        wait: If another process has it, wait, instead of raising InputError in one line that names the process.
        patience_s: Seconds of waiting after which that is printed.
        on_loss: Called, from another thread, if another process takes over the lease of an object store.

    Raise StorageError if the store cannot be written, or if the block failed because the lease was lost.
    """
    if not store.layout.is_local:
        claim(store.filesystem, store.layout.lease(NAME))
    lease = _lease(store, name, on_loss)
    try:
        if (holder := lease.take()) is not None:
            if not wait:
                raise _in_use(work, holder)
            _wait_for(lease, f"{work}: waiting for {holder}, which works on it", patience_s)
        yield lease
    except Exception:
        lease.check()
        raise
    finally:
        lease.release()


def _wait_for(lease: Lease, note: str, patience_s: float) -> None:
    print_at = time.monotonic() + patience_s
    while True:
        if time.monotonic() >= print_at:
            print_note(note)
            print_at = math.inf
        if lease.take() is None:
            return
        time.sleep(lease.poll_s)


def holder_of(store: Store, name: str) -> Holder | None:
    """Return which process has a lease; None if it is free."""
    return _lease(store, name).holder()


def held_leases(store: Store) -> list[str]:
    """Return the names of the leases that a process has, and of those whose file cannot be read."""
    folder, ending = store.layout.lease_files
    fs = store.filesystem
    paths: list[str] = []
    with storage_errors(folder), suppress(FileNotFoundError):
        paths = [path for path in fs.ls(folder, detail=False) if path.endswith(ending)]
    return [path.rpartition("/")[2].removesuffix(ending) for path in paths if _is_held(store, path)]


def _is_held(store: Store, path: str) -> bool:
    try:
        return _lease_at(store, path).holder() is not None
    except StorageError:
        return True  # whoever wrote it may be at work


def refuse_if_in_use(store: Store, name: str, work: str) -> None:
    """Raise InputError if a process has the lease: a quick look before anything is loaded or started."""
    if (holder := holder_of(store, name)) is not None:
        raise _in_use(work, holder)


def _in_use(work: str, holder: Holder) -> InputError:
    return InputError(f"{work}: in use by {holder}; wait until it has ended or {holder.how_to_stop}, then try again")


def _lease(store: Store, name: str, on_loss: Callable[[], object] = lambda: None) -> Lease:
    return _lease_at(store, store.layout.lease(name), on_loss)


def _lease_at(store: Store, path: str, on_loss: Callable[[], object] = lambda: None) -> Lease:
    if store.layout.is_local:
        return FileLease(store.filesystem, Path(path))
    return ObjectLease(store.filesystem, path, on_loss)
