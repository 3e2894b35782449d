"""Processes of our own that take messages: how one is started, and how it finds its pipes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO


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
