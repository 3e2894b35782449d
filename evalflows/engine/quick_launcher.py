"""The process that launches those of `workers.py`: it imports what they need once, and forks them."""

import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from evalflows.engine.child import given_pipe
from evalflows.specs.process_memory import collect_rarely, return_memory, search_rarely


def main(pipes: Sequence[Connection]) -> None:
    """Launch a process for each pipe, which works until that is closed, and wait for all."""
    search_rarely()
    return_memory()
    from evalflows.engine.quick_worker import work  # late: a second of imports

    collect_rarely()
    others = list(pipes)
    while others:
        pipe = others.pop()
        if os.fork() == 0:
            for other in others:
                other.close()
            work(pipe)
            return
        pipe.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the others
    for _ in pipes:
        os.wait()
    os._exit(0)  # it has done nothing that must be ended in order, which would take a tenth of a second


if __name__ == "__main__":
    main([given_pipe(number) for number in sys.argv[1:]])
