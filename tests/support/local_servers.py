"""Local servers for tests: what stands in their folder while they live, without a process of Prefect."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from evalflows.prefect_server import Home, Server, hold, write_secret


@contextmanager
def living(home: Home, *, port: int, secret: str) -> Iterator[Server]:
    """A folder as a living server keeps it. Its end, as by kill -9, leaves everything but the lock."""
    home.make()
    lock = hold(home.lock)
    assert lock is not None
    with lock:
        server = Server(
            pid=os.getpid(), port=port, since="2026-01-01T00:00:00+00:00", state="starting", ends_unused=False
        )
        write_secret(home.secret_file, secret)
        home.write(server)
        yield server
