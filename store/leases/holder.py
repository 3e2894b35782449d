"""The process that holds a lease, as the lease's file or object names it."""

import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from evalflows.store.records import now


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
        command = f" (`kill {self.pid}`{'' if self.host == socket.gethostname() else f' on {self.host}'})"
        return f"stop it{'' if self.pid in (UNKNOWN.pid, os.getpid()) else command}"


UNKNOWN = Holder("", 0, datetime(1970, 1, 1, tzinfo=UTC), "")
"""A holder that has not written its name yet."""


def this_process() -> Holder:
    return Holder(socket.gethostname(), os.getpid(), now(), secrets.token_hex(8))


def to_bytes(holder: Holder) -> bytes:
    return orjson.dumps(asdict(holder) | {"renewed_at": now(), "machine": _machine()})


def has_ended(body: bytes) -> bool:
    """Whether the holder was a process of this machine that is no longer there; False if that cannot be told."""
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
