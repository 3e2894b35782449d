"""Processes of our own that take messages: how one is started, how it finds its pipes, and the messages: a length,
then the content pickled by cloudpickle, which handles functions.
"""

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import cloudpickle


def start_child(
    module: str, pipes: Sequence[int] = (), defaults: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a module as a process that imports from where this one does. `defaults` are environment variables.

    It takes messages from its stdin and answers on its stdout, or gets the descriptors of other `pipes` as arguments.
    It leads its own process group: Ctrl-C is for this process, and killing the group also kills what it has started.
    """
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, pipes)],
        stdin=subprocess.DEVNULL if pipes else subprocess.PIPE,
        stdout=2 if pipes else subprocess.PIPE,
        pass_fds=pipes,
        env={**defaults, **os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


@contextmanager
def message_pipes() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the pipes of requests and answers in a process that was started so.

    The pipes are for messages, so what user code prints goes to stderr, and its stdin is empty.
    """
    with os.fdopen(os.dup(0), "rb", buffering=0) as requests, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = sys.stderr
        yield requests, answers


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
