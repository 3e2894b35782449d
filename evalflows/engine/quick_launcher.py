"""The process that launches those of `workers.py`: it imports what they need once, and forks them."""

import os
import signal
import sys
from collections.abc import Sequence

from evalflows.engine.rare_collection import collect_rarely, search_rarely


def main(pipes: Sequence[int]) -> None:
    """Launch a process for each pipe, which works until that is closed, and wait for all."""
    search_rarely()
    from evalflows.engine.quick_worker import work  # late: a second of imports

    collect_rarely()
    sys.stdout = sys.stderr  # what user code prints is there at once, and is not lost when its process is ended
    others = list(pipes)
    while others:
        pipe = others.pop()
        if os.fork() == 0:
            for other in others:
                os.close(other)
            work(pipe)
            return
        os.close(pipe)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the others
    for _ in pipes:
        os.wait()
    os._exit(0)  # it has done nothing that must be ended in order, which would take a tenth of a second


if __name__ == "__main__":
    main([int(pipe) for pipe in sys.argv[1:]])
