"""Set-up shared by the commands that run a flow: logging, imports, and the display of progress."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from evalflows.cli.late_commands import INTERRUPTED
from evalflows.cli.output import console, echo_error, escaped_logs
from evalflows.engine.interrupts import forget_interrupts, note_interrupt
from evalflows.prefect_server import begin_early
from evalflows.reports.progress import Watch, shown_progress
from evalflows.specs.errors import StorageError


@contextmanager
def prepared(verbose: bool, name: str) -> Iterator[Watch]:
    """Set up Prefect's log and the display of progress, and make modules in the current folder importable.

    Import flows inside the block: Prefect takes seconds to load.
    """
    begin_early()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")
    find_modules_here()
    try:
        with (
            escaped_logs() if verbose else nullcontext(),
            _signals_stop(f"stopped at once; `evalflows resume {name}` continues"),
            shown_progress(console(stderr=True)) as watch,
        ):
            yield watch
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"`evalflows resume {name}` continues") from None
    except StorageError as error:
        raise StorageError(f"{error}; `evalflows resume {name}` continues") from error


@contextmanager
def _signals_stop(at_once: str) -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM as on Ctrl-C. A second signal ends the process at once, with this message.

    An end at once loses no finished call, and a run that hangs while it stops would print tracebacks otherwise.
    """
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            echo_error(at_once)
            os._exit(INTERRUPTED)
        stopping = True
        note_interrupt()
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a background job
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        forget_interrupts()


def find_modules_here() -> None:
    """Look for modules in the current folder first, as `python -m` and a worker's flow runs do.

    A spec's `tests.judges:polite` is then the user's, even if the environment also has a package `tests`.
    """
    sys.path.insert(0, str(Path.cwd()))
