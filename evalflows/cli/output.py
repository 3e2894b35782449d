"""All output of the command line.

Texts come from data, answers and endpoints, so control characters are escaped; tables never break a word. Nothing here
loads Prefect.
"""

import logging
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import groupby
from typing import Any

import click
import rich.console
import rich.table
import rich.text
from rich.cells import cell_len
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style

from evalflows.specs.escaping import escaped, joined, one_line, write_csv

MAX_MESSAGE = 500
"""The number of characters after which an error message is cut."""

DECISION_STYLES = {"PASS": "bold green", "FAIL": "bold red", "NOT ENOUGH EVIDENCE": "bold yellow"}

GAP = 2
"""Spaces between columns, and before a row that stands below its heading."""

MIN_WRAPPED = 24
"""The width to which a column of sentences may shrink."""

MIN_VERDICT = len("no significant")
"""The width to which a column of verdicts may shrink."""

NUMBERS = {
    *("mean", "scored", "missing", "n/a", "answered", "failed", "examples", "versions"),
    *("pairs", "p", "p adj."),
}
"""Columns that are aligned to the right."""


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

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """In a terminal nobody sees the spaces that fill up a line; files and messages would keep them."""
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else _LAST_SPACES.sub("", text)


_LAST_SPACES = re.compile(r" +(?=\n)")  # not where the line goes on


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


def echo_bytes(content: bytes) -> None:
    """Write a file's content to standard output."""
    click.echo(content, nl=False)


def echo_error(message: str) -> None:
    """Print an error as one line on standard error, cut at MAX_MESSAGE characters."""
    echo(f"evalflows: {shortened(one_line(joined(message)))}", err=True)


def echo_traceback() -> None:
    """Print the traceback of the exception that is being handled."""
    echo(traceback.format_exc(), err=True, nl=False)


def flush() -> None:
    """Write out what was printed: a forked process would print it again."""
    sys.stdout.flush()
    sys.stderr.flush()


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
def escape_logs() -> Iterator[None]:
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


class Table(rich.table.Table):
    """A table without lines that no layout breaks a word or an id of.

    If it is too wide, columns of sentences (`wrapped`) are wrapped between words. If that does not suffice, the first
    columns, up to `headings` of them, stand on a line of their own above the rows that share them. Else each row is a
    block of lines, with a name and a value each.
    """

    def __init__(self, *columns: str, headings: int = 0, wrapped: Sequence[str] = ()) -> None:
        super().__init__(box=None, header_style="bold", pad_edge=False)
        self._headings, self._wrapped = headings, wrapped
        for name in columns:
            self.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")

    def fits(self, width: int) -> bool:
        """Return whether it has one line per row in so many columns, or more where sentences are wrapped."""
        return self._widths(self._cells(), 0, width) is not None

    def _cells(self) -> list[list[Text]]:
        return [[_text(cell) for cell in (column.header, *column.cells)] for column in self.columns]

    def __rich_console__(self, console: object, options: ConsoleOptions) -> RenderResult:
        cells = self._cells()
        for lifted in range(min(self._headings, len(cells) - 1) + 1):
            widths = self._widths(cells[lifted:], lifted, options.max_width - (GAP if lifted else 0))
            if widths is not None:
                yield from self._laid_out(cells, lifted, widths)
                return
        yield from self._blocks(cells)

    def _widths(self, cells: Sequence[Sequence[Text]], lifted: int, room: int) -> list[int] | None:
        """Return the width of each column; None if they do not fit. Columns of sentences share what is left."""
        widths = [max(map(_width, column)) for column in cells]
        room -= sum(widths) + GAP * (len(widths) - 1)
        for index, column in enumerate(cells):
            if room < 0 and self.columns[lifted + index].header in self._wrapped:
                least = MIN_VERDICT if self.columns[lifted + index].header == "verdict" else MIN_WRAPPED
                least = max([least, *(cell_len(word) for cell in column for word in cell.plain.split())])
                shrunk = max(min(widths[index], least), widths[index] + room)
                room += widths[index] - shrunk
                widths[index] = shrunk
        return widths if room >= 0 else None

    def _laid_out(
        self, cells: Sequence[Sequence[Text]], lifted: int, widths: Sequence[int]
    ) -> Iterator[RenderableType]:
        rows = list(zip(*cells, strict=True))
        if lifted:
            yield self._heading(rows[0][:lifted], style="bold")
        yield self._part([[Text(name.plain, "bold") for name in rows[0][lifted:]]], lifted, widths)
        for _, of_one in groupby(rows[1:], key=lambda row: [cell.plain for cell in row[:lifted]]):
            group = list(of_one)
            if lifted:
                yield self._heading(group[0][:lifted])
            yield self._part([row[lifted:] for row in group], lifted, widths)

    def _heading(self, cells: Sequence[Text], style: str = "") -> Text:
        return Text((" " * GAP).join(cell.plain for cell in cells if cell.plain), style)

    def _part(self, rows: Sequence[Sequence[Text]], lifted: int, widths: Sequence[int]) -> RenderableType:
        """Return some rows, below a heading indented, in columns of these widths."""
        cells = [(cell, width) for row in rows for cell, width in zip(row, widths, strict=True)]
        if all(cell_len(cell.plain) <= width and "\n" not in cell.plain for cell, width in cells):
            return Group(*(self._line(row, lifted, widths) for row in rows))
        grid = rich.table.Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
        for width, column in zip(widths, self.columns[lifted:], strict=True):
            grid.add_column(justify=column.justify, width=width, overflow="fold")
        for row in rows:
            grid.add_row(*row)
        return Padding(grid, (0, 0, 0, GAP)) if lifted else grid

    def _line(self, row: Sequence[Text], lifted: int, widths: Sequence[int]) -> Text:
        """Return a row of one line, which rich would lay out in several times the time."""
        line = Text(" " * GAP if lifted else "")
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap, blank = " " * GAP if number else "", " " * (width - cell_len(cell.plain))
            is_right = self.columns[lifted + number].justify == "right"
            line.append(gap + blank if is_right else gap).append_text(cell).append_text(Text("" if is_right else blank))
        return line

    def _blocks(self, cells: Sequence[Sequence[Text]]) -> Iterator[RenderableType]:
        for number, row in enumerate(zip(*(column[1:] for column in cells), strict=True)):
            if number:
                yield Text()
            block = rich.table.Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
            block.add_column(style="bold", no_wrap=True)
            block.add_column(overflow="fold")
            for column, value in zip(cells, row, strict=True):
                if value.plain or not self._headings:  # a query's columns are shown whatever they hold
                    block.add_row(column[0], value)
            yield block


def table(*columns: str, headings: int = 0, wrapped: Sequence[str] = ()) -> Table:
    """Return an empty table; see `Table`."""
    return Table(*columns, headings=headings, wrapped=wrapped)


def cell_of_lines(lines: Sequence[str]) -> Text:
    """Return a cell of a table with these lines, none of which holds a newline of its own."""
    return Text("\n".join(map(one_line, lines)), lines=True)


def indented_lines(*widths: int) -> rich.table.Table:
    """Return a table without a header: columns of these widths, and one for texts, which wraps between words."""
    out = rich.table.Table.grid()
    for width in widths:
        out.add_column(width=width, no_wrap=True)
    out.add_column(overflow="fold")
    return out


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _width(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))
