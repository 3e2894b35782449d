"""All output of the command line. Texts come from data, answers and endpoints, so control characters are escaped."""

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click
import rich.console
import rich.text
from rich.segment import Segment
from rich.style import Style

from evalflows.specs.safe_text import escaped, joined, one_line, write_csv

MAX_MESSAGE = 500
"""The number of characters after which an error message is cut."""


class Text(rich.text.Text):
    """A styled text in which control characters are escaped; newlines too, unless it may have several `lines`.

    rich would drop some control characters, and print the others.
    """

    def __init__(self, text: str = "", style: str | Style = "", *, lines: bool = False) -> None:
        super().__init__(escaped(text) if lines else one_line(text), style)

    def append(self, text: str | rich.text.Text, style: str | Style | None = None) -> "Text":
        super().append(one_line(text) if isinstance(text, str) else text, style)
        return self


class Console(rich.console.Console):
    """A console that prints control characters only for its own styles and cursor movements.

    Strings are escaped before they are laid out, so that widths are right, and are one line each, so that no name or
    error looks like a line of ours. Segments are escaped again, whatever they come from.
    """

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        return super().render_str(one_line(text), **options)

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


WIDTH_ELSEWHERE = 160
"""Columns of an output that is not a terminal, unless COLUMNS is set."""


class PipeConsole(Console):
    """A console that raises BrokenPipeError if nobody reads on; rich would end the program with the code of a FAIL."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Return a console as wide as COLUMNS says, else as the terminal, else WIDTH_ELSEWHERE."""
    is_known = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if is_known else WIDTH_ELSEWHERE
    return PipeConsole(width=width, stderr=stderr, highlight=False, markup=False, emoji=False)


def discard_output() -> None:
    """Drop what is printed from now on: nobody reads it, and the flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print a text with control characters escaped, to standard output or standard error."""
    click.echo(escaped(text), err=err, nl=nl)


def echo_error(message: str) -> None:
    """Print an error as one line on standard error, cut at MAX_MESSAGE characters."""
    echo(f"evalflows: {shortened(one_line(joined(message)))}", err=True)


def echo_traceback() -> None:
    """Print the traceback of the exception that is being handled."""
    echo(traceback.format_exc(), err=True, nl=False)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send to standard error what the block prints to standard output, also in processes that it starts."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def print_csv(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table as CSV like `write_csv`; on a terminal, with control characters escaped."""
    if sys.stdout.isatty():
        rows = ([escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    write_csv(sys.stdout, columns, rows)


@contextmanager
def escaped_logs() -> Iterator[None]:
    """Escape the control characters in the messages and tracebacks of all log records made in the block."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(_EscapedRecord)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


class _EscapedRecord(logging.LogRecord):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if self.exc_info:
            self.exc_text = escaped(logging.Formatter().formatException(self.exc_info))

    def getMessage(self) -> str:  # noqa: N802
        return escaped(super().getMessage())


def shortened(message: str) -> str:
    """Cut a message at MAX_MESSAGE characters."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
