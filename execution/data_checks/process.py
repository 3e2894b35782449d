"""Checks in a process of their own; that of a snapshot works while the run's process prepares.

So the run waits less, and never imports Great Expectations itself.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from tempfile import TemporaryFile
from typing import IO, Any

from evalflows.execution.data_checks.request import CheckRequest, PageRequest, ResultRequest
from evalflows.specs.errors import IncompleteError, InputError, StorageError
from evalflows.specs.safe_text import last_line
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow

COMMAND = (sys.executable, "-P", "-m", "evalflows.execution.data_checks.worker")
ERRORS: dict[str, type[Exception]] = {error.__name__: error for error in (InputError, StorageError)}


class CheckProcess:
    """A process that answers one request. It ends with this one at the latest: then its stdin closes."""

    def __init__(self, request: str) -> None:
        with ExitStack() as stack:
            # Files, as pipes would have to be read all the time.
            self._answer, self._log = (stack.enter_context(TemporaryFile()) for _ in range(2))
            self._popen = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=self._answer, stderr=self._log, start_new_session=True
            )
            stack.callback(self._end)
            with suppress(BrokenPipeError):  # it has ended, and `answer` says how
                self._stdin.write(f"{request}\n".encode())
                self._stdin.flush()
            self._stack = stack.pop_all()

    def answer(self) -> str:
        """Return what it wrote, once it has ended. Raise IncompleteError if it failed."""
        if code := self._popen.wait():
            self._log.seek(0)
            last = last_line(self._log.read().decode(errors="replace"))
            raise IncompleteError(f"data checks: their process ended with exit code {code}: {last}")
        self._answer.seek(0)
        return self._answer.read().decode()

    def close(self) -> None:
        """End it if it still runs."""
        self._stack.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._popen.stdin is not None
        return self._popen.stdin

    def _end(self) -> None:
        self._popen.kill()
        self._popen.wait()
        with suppress(BrokenPipeError):  # what it did not read
            self._stdin.close()


_begun: ContextVar[dict[str, CheckProcess] | None] = ContextVar("evalflows_begun_checks", default=None)
"""The processes of this run, by request."""


@contextmanager
def checks_end_here() -> Iterator[None]:
    """End the processes that were begun in this block, at its end. Within another such block, do nothing."""
    if _begun.get() is not None:
        yield
        return
    begun: dict[str, CheckProcess] = {}
    token = _begun.set(begun)
    try:
        yield
    finally:
        _begun.reset(token)
        for process in begun.values():
            process.close()


def begin_checks(store: Store, request: CheckRequest) -> None:
    """Begin to check a snapshot without waiting, if that was not done before. Outside of a block, do nothing."""
    begun, text = _begun.get(), request.to_json()
    if begun is not None and text not in begun and not store.is_sealed("checks", request.batch):
        begun[text] = CheckProcess(text)


def checks_of(request: CheckRequest | ResultRequest) -> list[CheckRow]:
    """Return the checks of a snapshot or of results, as soon as the process that makes them has ended.

    Raise InputError for an unknown or misconfigured expectation, and IncompleteError if the process failed.
    """
    return [CheckRow(**columns) for columns in _answer(request.to_json())["checks"]]


def pages_of(request: PageRequest) -> dict[str, str]:
    """Return the Data Docs of batches of checks, by batch. Raise IncompleteError if the process failed."""
    pages: dict[str, str] = _answer(request.to_json())["pages"]
    return pages


def _answer(text: str) -> Any:
    begun = _begun.get() or {}
    with closing(begun.pop(text) if text in begun else CheckProcess(text)) as process:
        result = json.loads(process.answer())
    if error := result.get("error"):
        raise ERRORS[error](result["message"])
    return result
