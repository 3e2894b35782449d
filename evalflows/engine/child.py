"""Processes of our own that take messages: how one is started, how it finds its pipe, and the messages, pickled by
cloudpickle, which handles functions.

`multiprocessing` starts none: its children run the user's main program again, which without a guard would begin another
run.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cloudpickle


def start_child(
    module: str, pipes: Sequence[Connection], defaults: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a module as a process that imports from where this one does, with its ends of pipes, which are closed here.

    `defaults` are environment variables. It leads its own process group: Ctrl-C is for this process, and killing the
    group also kills what it has started. What it prints goes to stderr, and its stdin is empty.
    """
    numbers = [pipe.fileno() for pipe in pipes]
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    started = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=numbers,
        env={**defaults, **os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    for pipe in pipes:
        pipe.close()
    return started


def given_pipe(number: str) -> Connection:
    """Return a pipe that a process was started with, which those that it starts do not get."""
    os.set_inheritable(int(number), False)
    sys.stdout = sys.stderr  # what user code prints is there at once, and is not lost when its process is ended
    return Connection(int(number))


def send(pipe: Connection, message: object) -> None:
    """Send a message. Raise BrokenPipeError if nobody reads, and any pickling error before anything is sent."""
    pipe.send_bytes(cloudpickle.dumps(message))


def receive(pipe: Connection, until: float | None = None) -> Any:
    """Return a message; None if the other side has ended or `until` (monotonic, in seconds) has passed.

    Raise any error of the modules that unpickling imports.
    """
    try:
        if until is not None and not pipe.poll(max(0.0, until - time.monotonic())):
            return None
        content = pipe.recv_bytes()
    except (EOFError, OSError):
        return None
    return cloudpickle.loads(content)
