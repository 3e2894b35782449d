"""The worker side of `quick_processes.py`: processes that work on chunks until their pipes close."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any

import numpy as np

# What the first chunk needs, while the run's process still prepares.
from evalflows.execution import recorded_answers  # noqa: F401
from evalflows.execution.chunks import Chunk, Rounds
from evalflows.execution.isolation.messages import receive, send
from evalflows.execution.rare_collection import collect_rarely
from evalflows.execution.running_experiment import running_experiment
from evalflows.execution.same_code import check_code_of_experiment
from evalflows.specs.errors import describe
from evalflows.store import first_columns  # noqa: F401


def main(pipes: Sequence[int]) -> None:
    """Work with one process for each pipe, all forked from this one, which waits for them."""
    collect_rarely()
    sys.stdout = sys.stderr  # what user code prints is there at once, and is not lost when this process is ended
    others = list(pipes)
    while others:
        pipe = others.pop()
        if os.fork() == 0:
            for other in others:
                os.close(other)
            _work(pipe)
            return
        os.close(pipe)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the others
    for _ in pipes:
        os.wait()
    os._exit(0)  # it has done nothing that must be ended in order, which would take a tenth of a second


def _work(pipe: int) -> None:
    os.set_inheritable(pipe, False)
    np.random.seed()  # as `random` does by itself: all would draw the same numbers
    with suppress(BrokenPipeError), os.fdopen(pipe, "rb") as requests, os.fdopen(os.dup(pipe), "wb") as answers:
        while (request := receive(requests)) is not None:
            _send(answers, _reply_to(*request))


def _reply_to(function: Any, work: tuple[object, ...]) -> tuple[Any, BaseException | None]:
    try:
        for chunk in work[0].chunks if work and isinstance(work[0], Chunk | Rounds) else ():
            _check_code(chunk.experiment_id)
        return function(*work), None
    except BaseException as error:
        return None, error


@cache
def _check_code(experiment_id: str) -> None:
    check_code_of_experiment(running_experiment(experiment_id), in_cluster=False)


def _send(answers: IO[bytes], reply: tuple[Any, BaseException | None]) -> None:
    try:
        send(answers, reply)
    except BrokenPipeError:  # the run's process has ended, and so does this one
        raise
    except Exception:  # an error that cannot be pickled
        send(answers, (None, RuntimeError(describe(reply[1]) if isinstance(reply[1], Exception) else str(reply[1]))))


if __name__ == "__main__":
    main([int(pipe) for pipe in sys.argv[1:]])
