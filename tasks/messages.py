"""Messages between two processes, over pipes: the length, then what was said, pickled, the user's functions too."""

import os
import select
import struct
import time
from typing import IO, Any

import cloudpickle

_LENGTH = struct.Struct(">Q")


def send(pipe: IO[bytes], message: object) -> None:
    """Raises BrokenPipeError where nobody reads, and whatever pickling raises, with nothing sent."""
    content = cloudpickle.dumps(message)
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes], until: float | None = None) -> Any:
    """A whole message; None where the other side has ended, or where time (monotonic, in seconds) is up before.

    Raises whatever the modules raise that it names.
    """
    head = _read(pipe, _LENGTH.size, until)
    content = None if head is None else _read(pipe, _LENGTH.unpack(head)[0], until)
    return None if content is None else cloudpickle.loads(content)


def _read(pipe: IO[bytes], count: int, until: float | None) -> bytes | None:
    """From the pipe itself, not from a buffer of Python's: of that `poll` knows nothing. `select` would do, but for a
    process that has more than 1,024 files open."""
    parts, lacking, waiting = [], count, select.poll()
    waiting.register(pipe, select.POLLIN)
    while lacking:
        wait_ms = None if until is None else 1000 * max(0.0, until - time.monotonic())
        if not waiting.poll(wait_ms):
            return None
        part = os.read(pipe.fileno(), min(lacking, 1 << 20))
        if not part:
            return None
        parts.append(part)
        lacking -= len(part)
    return b"".join(parts)
