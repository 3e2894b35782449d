"""Messages between two processes over pipes: the length, then the pickled content. cloudpickle handles functions."""

import os
import select
import struct
import time
from typing import IO, Any

import cloudpickle

_LENGTH = struct.Struct(">Q")


def send(pipe: IO[bytes], message: object) -> None:
    """Send a message. Raise BrokenPipeError if nobody reads, and any pickling error before anything is sent."""
    content = cloudpickle.dumps(message)
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes], until: float | None = None) -> Any:
    """Return a whole message; None if the other side has ended or `until` (monotonic, in seconds) has passed.

    Raise any error of the modules that unpickling imports.
    """
    head = _read(pipe, _LENGTH.size, until)
    content = None if head is None else _read(pipe, _LENGTH.unpack(head)[0], until)
    return None if content is None else cloudpickle.loads(content)


def _read(pipe: IO[bytes], count: int, until: float | None) -> bytes | None:
    """Read from the pipe itself, since `poll` does not see Python's buffers; `select` fails above 1,024 open files."""
    parts, remaining, poller = [], count, select.poll()
    poller.register(pipe, select.POLLIN)
    while remaining:
        wait_ms = None if until is None else 1000 * max(0.0, until - time.monotonic())
        if not poller.poll(wait_ms):
            return None
        part = os.read(pipe.fileno(), min(remaining, 1 << 20))
        if not part:
            return None
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)
