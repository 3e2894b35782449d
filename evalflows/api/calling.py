"""How a program or a notebook calls a flow in its own process: under which settings, and what it sees of an error: one
exception, without Prefect's frames and log records."""

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_RESULTS_LOCAL_STORAGE_PATH, get_current_settings
from rich.console import Console

from evalflows.engine.run_context import calling
from evalflows.llm.ledger import Calls
from evalflows.prefect_server import DENIED, access_denied, results_folder, server_access
from evalflows.reports.progress import Watch, in_notebook, show_progress
from evalflows.server_watch import WatchedServer, change_settings, server_watched
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.tracebacks import FOR_USERS, OTHERS, PREFECTS, without_frames

REACHED_WITHIN_S = 10.0
"""Seconds that a server may take to answer that it is there."""

_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
_ENGINES = ("flow_engine", "task_engine")


@contextmanager
def call_flow(watch: Watch | None, calls: Calls | None = None) -> Iterator[None]:
    """Prepare a run and call its flow in this block.

    `watch` is told the progress; without one, a notebook shows a bar. `calls` counts the model calls.
    """
    with (
        show_progress(Console()) if watch is None and in_notebook() else nullcontext(watch) as shown,
        calling(shown, calls),
    ):
        yield


@contextmanager
def flow_settings() -> Iterator[WatchedServer | None]:
    """Run flows of this block without heartbeats, on the configured Prefect API or else on the local server, and yield
    that server.

    Heartbeats tell a server that a worker's flow run has died. Here they would only make every run last whole seconds:
    the run waits for their thread, which sleeps for a second at a time. Exceptions, which Prefect keeps as results, are
    kept where `evalflows forget` finds them. Raise InputError if the server denies access or cannot be reached, and
    IncompleteError if it is lost later: Prefect's client would try for minutes.
    """
    defaults = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_RESULTS_LOCAL_STORAGE_PATH: results_folder()}
    try:
        with server_access(), change_settings(set_defaults=defaults):
            _check_reachable(get_current_settings().api.url or "")
            with server_watched() as server:
                yield server
    except PrefectHTTPStatusError as error:
        if error.response.status_code not in DENIED:
            raise
        raise access_denied(get_current_settings().api.url) from error


def _check_reachable(url: str) -> None:
    """Raise InputError if nothing answers at a server's address. How it answers does not matter here."""
    try:
        with urlopen(f"{url.rstrip('/')}/health", timeout=REACHED_WITHIN_S):
            pass
    except HTTPError:
        pass
    except (OSError, ValueError) as error:  # TimeoutError and URLError are OSErrors
        why = error.reason if isinstance(error, URLError) else error
        if not isinstance(why, ssl.SSLError):  # Prefect may know other certificates
            text = getattr(why, "strerror", None) or why
            raise InputError(f"PREFECT_API_URL={url}: {text}, wanted a running Prefect server") from error


class RaisedToCaller:
    """A block from which exceptions come without Prefect's frames, and without Prefect's log of the same exception,
    and with the values of the data that Prefect does not keep.

    The server gets the log as always, and so does the console if PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL asks for more
    than warnings. It is the outermost block: a context manager that is a generator puts the frames back.
    """

    def __enter__(self) -> None:
        self._handlers = [] if _wants_log() else [*logging.getLogger().handlers]
        for handler in self._handlers:
            handler.addFilter(_is_no_failure_of_a_run)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for handler in self._handlers:
            handler.removeFilter(_is_no_failure_of_a_run)
        if isinstance(error, InputError | IncompleteError) and error.whole:
            error.args = (error.whole,)
        for e in _linked(error):
            e.__traceback__ = without_frames(e.__traceback__, OTHERS if isinstance(error, FOR_USERS) else PREFECTS)


def _linked(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes, and what was being handled."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        linked = waiting.pop()
        if linked is not None and id(linked) not in seen:
            seen.add(id(linked))
            waiting += [linked.__cause__, linked.__context__]
            yield linked


def _wants_log() -> bool:
    """Return whether the console is to show Prefect's log, as with `--verbose`."""
    level = os.environ.get("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING").upper()
    return logging.getLevelNamesMapping().get(level, logging.WARNING) < logging.WARNING


def _is_no_failure_of_a_run(record: logging.LogRecord) -> bool:
    """Return whether a record is not Prefect's report of the exception that the caller gets anyway."""
    is_failure = record.levelno >= logging.ERROR and record.module in _ENGINES
    return not (is_failure and record.name in _LOGGERS)
