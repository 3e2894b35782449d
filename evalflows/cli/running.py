"""Set-up shared by the commands that run a flow: logging, imports, and the display of progress."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType

from evalflows.cli.late_commands import INTERRUPTED, is_interrupted_query
from evalflows.cli.output import console, echo_error, escape_logs
from evalflows.engine.interrupts import Noting
from evalflows.prefect_server import begin_early
from evalflows.reports.progress import Watch, show_progress
from evalflows.specs import hints
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.queries.continuing import batch_since, begun_since, continued_by, undecided_since
from evalflows.store.store import Store

_NEEDED_BY_RUNS = (
    *("evalflows.api.running", "evalflows.flows.run_experiment", "evalflows.analysis.diff", "evalflows.cli.diff"),
    *("evalflows.cli.gates", "evalflows.llm.protocols.openai", "evalflows.llm.capped_client"),
    "prefect.utilities.visualization",
)


@contextmanager
def prepare_runs(verbose: bool) -> Iterator[Watch]:
    """Set up Prefect's log and the display of progress, and make modules in the current folder importable.

    Import flows inside the block: Prefect takes seconds to load.
    """
    begin_early()
    began = datetime.now(UTC)
    _set_log_level(verbose)
    find_modules_here()
    try:
        with (
            escape_logs() if verbose else nullcontext(),
            _signals_stop(f"stopped at once; finished calls are kept: {hints.list_runs().code}"),
            show_progress(console(stderr=True)) as watch,
        ):
            yield watch
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_interrupted_query(error):
            raise
        raise KeyboardInterrupt(_continued(began)) from None
    except StorageError as error:
        raise StorageError(f"{error}; {_continued(began)}") from error


def _set_log_level(verbose: bool) -> None:
    """Tell Prefect what of its log to print, before it is imported."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")


def load_for_runs(verbose: bool) -> None:
    """Import what a run and its report need, and nothing of the user's."""
    _set_log_level(verbose)
    for module in _NEEDED_BY_RUNS:
        import_module(module)


def _continued(since: datetime) -> str:
    """Say what continues the run that this command began or resumed since then."""
    with suppress(InputError, StorageError):
        if (begun := begun_since(Store(), since)) is not None:
            return continued_by(Store(), begun)
        if (undecided := undecided_since(Store(), since)) is not None:
            return f"the gates have not decided: {hints.resume(undecided).code} lets them"
        if (name := batch_since(Store(), since)) is not None:
            return f"finished judgements are kept: the same command judges the rest of {name!r}"
    return "nothing is left to resume"


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
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a background job
        numbers.append(signal.SIGINT)
    noting = Noting(stop)
    before = {number: signal.signal(number, noting) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_modules_here() -> None:
    """Look for modules in the current folder first, as `python -m` and a worker's flow runs do.

    A spec's `tests.judges:polite` is then the user's, even if the environment also has a package `tests`.
    """
    sys.path.insert(0, str(Path.cwd()))
