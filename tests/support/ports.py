"""Free ports for servers that bind them themselves, a while after they were chosen."""

import random
import socket
from contextlib import ExitStack

# Hypothesis seeds the usual one: all workers would draw the same ports.
_drawn = random.SystemRandom()


def free_ports(n: int) -> list[int]:
    """Return free ports of loopback, below those that systems give to outgoing connections (Linux: from 32768).

    A port of those, free when it was asked for, is taken by somebody's connection before a slow server binds it.
    """
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < n:
            port = _drawn.randrange(20000, 32768)
            try:
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports
