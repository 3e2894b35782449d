"""Query the store with SQL. Nothing here loads Prefect."""

import json
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from evalflows.cli.errors import BAD_INPUT, one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.tables import table
from evalflows.cli.terminal import Text, console, echo, echo_error, print_csv
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import json_text, print_note
from evalflows.store.catalog import grain, is_mart, select_from, view_files
from evalflows.store.existing import is_store, no_store, store_or_empty
from evalflows.store.exports.query_file import write_query
from evalflows.store.exports.whole_files import whole_file
from evalflows.store.layout import Layout
from evalflows.store.restricted import memory_limit_bytes, peak_memory_bytes

TIMEOUT_S = 60.0
SHOWN = 40
"""Rows that are shown in a terminal."""

GRACE_S = 5.0
"""Seconds that a query may take to end after it was interrupted."""


@click.command()
@click.argument("query", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "md", "parquet"]),
    default="table",
    help="json: one object per line; md: a table in Markdown; parquet: needs --output.",
)
@click.option("--output", metavar="FILE", help="Output file. Default: standard output.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    help="Stop the query after this time.",
)
@VERBOSE
def sql(query: str | None, form: str, output: str | None, timeout_s: float, verbose: bool) -> None:
    """Run a SQL QUERY on the store. Without QUERY, list the marts, then the tables, and what one row of each is.

    A query reads the store only: no other files, no network, no extensions.
    """
    with one_line_errors(verbose):
        if form == "parquet" and (query is None or output is None):
            raise InputError("sql: got --format parquet, which needs a query and --output FILE")
        if query is None:
            views = [
                (path.stem, ", ".join(grain(path)), _about(path.read_text(encoding="utf-8")))
                for path in sorted(view_files(), key=lambda path: (not is_mart(path), path.stem))
            ]
            with _stdout_to(output):
                _print_rows(("view", "one row per", "about"), views, form)
            return
        is_missing = not is_store(layout := Layout.at())
        with _ended_at_once(timeout_s + GRACE_S, memory_limit_bytes()), store_or_empty() as store:
            relation = select_from(store, query, timeout_s)
            if form == "parquet":
                write_query(relation, Path(output or ""))
            rows = [] if form == "parquet" else relation.fetchall()
        if is_missing:
            print_note(no_store(layout))
        if form != "parquet":
            with _stdout_to(output):
                _print_rows(relation.columns, rows, form, [str(kind) == "JSON" for kind in relation.types])


@contextmanager
def _stdout_to(output: str | None) -> Iterator[None]:
    """Send to a file, if one is given, what the block prints. The file is written whole or not at all."""
    if output is None:
        yield
        return
    with (
        whole_file(Path(output)) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as file,
        redirect_stdout(file),
    ):
        yield


@contextmanager
def _ended_at_once(seconds: float, memory_bytes: int) -> Iterator[None]:
    """End the process if the block takes longer, or if the process uses half as much memory again.

    DuckDB cannot interrupt a single call of a function, such as `repeat('a', 4000000000)`, and its memory limit does
    not count what such a call allocates. Nothing is lost by ending a process that only reads.
    """
    finished, deadline = threading.Event(), time.monotonic() + seconds

    def watch() -> None:
        while not finished.wait(0.1):
            if time.monotonic() > deadline:
                _end(f"sql: stopped after {seconds:g} s, wanted a faster query or a longer --timeout")
            if (peak := peak_memory_bytes()) > 1.5 * memory_bytes:
                _end(f"sql: stopped at {peak / 2**30:.1f} GiB of memory, wanted a query that needs less")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _end(message: str) -> None:
    echo_error(message)
    os._exit(BAD_INPUT)


def _about(text: str) -> str:
    return text.partition("\n")[0].partition(": ")[2]


def _plain(value: Any, is_json: bool) -> Any:
    """A value for JSON: JSON text is parsed, decimals become floats, NaN becomes null."""
    if is_json and value is not None:
        return json.loads(value)
    if isinstance(value, Decimal):
        return float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str, json_columns: Sequence[bool] | None = None
) -> None:
    json_columns = json_columns or [False] * len(columns)
    if form == "csv":
        print_csv(columns, rows)
    elif form == "json":
        for row in rows:
            values = dict(zip(columns, map(_plain, row, json_columns), strict=True))
            echo(json_text(values, default=str))
    elif form == "md":
        from evalflows.reports.markdown import escaped, markdown_table

        cells = (["" if value is None else str(value) for value in row] for row in rows)
        echo(markdown_table([*map(escaped, columns)], cells))
    else:
        _print_table(columns, rows)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table; in a terminal at most SHOWN of them, and how many there are."""
    terminal, out = console(), table(*columns, wrapped=("about",))
    is_plan = list(columns) == ["explain_key", "explain_value"]  # drawn over several lines
    shown = rows[:SHOWN] if terminal.is_terminal else rows
    for row in shown:
        out.add_row(*(Text("" if value is None else str(value), lines=is_plan) for value in row))
    terminal.print(out)
    if len(rows) > len(shown):
        echo(f"{len(shown)} of {len(rows):,} rows; all of them: --format csv, or json")
