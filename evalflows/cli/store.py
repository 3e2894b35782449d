"""The store on the command line: SQL, exports, migration, and the state of its files.

No command here loads Prefect or the specs.
"""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import click

from evalflows.cli.late_commands import BAD_INPUT, FORMAT, INCOMPLETE, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo, echo_error, print_csv, table
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import json_text, one_line
from evalflows.store.database import memory_limit_bytes, peak_memory_bytes
from evalflows.store.doctor import Examination, examine
from evalflows.store.exports import Exported, whole_file, write_query, write_whole
from evalflows.store.packing import SETTLED_S, Packed, pack
from evalflows.store.queries.labels import preferences_of
from evalflows.store.queries.lookup import find_comparison
from evalflows.store.sql import select_from
from evalflows.store.store import existing_store
from evalflows.store.views import grain, is_mart, view_files

COPY = click.option("--copy", is_flag=True, help="Write tables with the rows, instead of views that read the store.")
ONLY = click.option(
    "--only", metavar="NAME", multiple=True, help="Export only this view. Repeatable. `evalflows sql` lists the views."
)
ALL = click.option("--all", "is_all", is_flag=True, help="Also export internal and empty tables.")
SCHEMA = click.option("--schema", default="evalflows", show_default=True, help="The schema that holds the tables.")

FIRST = ("results", "item_scores")
"""What answers most questions."""

TIMEOUT_S = 60.0
ROWS_SHOWN = 40
"""Rows that are shown in a terminal."""

GRACE_S = 5.0
"""Seconds that a query may take to end after it was interrupted."""


@click.command()
@with_one_line_errors
def compact() -> None:
    """Merge the small files of finished experiments, for faster queries.

    Rows do not change, and runs and queries can continue meanwhile. Files from the last minute wait for the next time.
    Runs do this by themselves when a table has 100 small files.
    """
    echo(_summary(pack(existing_store())))


def _summary(packed: Packed) -> str:
    if not packed.n_owner_files:
        return f"nothing to do: no two files of a table are small, finished and older than {SETTLED_S:.0f} s"
    return f"packed {packed.n_owner_files} files into {packed.n_packed_files}"


@click.command()
@FORMAT
@with_one_line_errors
def doctor(form: str) -> None:
    """Read every file of the store, and say what is damaged and what to do.

    It checks checksums, manifests, footers, columns, repeated keys, missing rows, foreign files and the spool. The only
    repair is to recreate missing empty files, which loses nothing. Exit code 0: sound; 4: something is damaged.
    """
    examination = examine(existing_store())
    if form == "json":
        print_json({"is_sound": examination.is_sound, **asdict(examination)})
    else:
        for finding in examination.findings:
            echo(one_line(f"{finding.severity}: {finding.path}: {finding.problem}; {finding.advice}"))
        echo(_doctor_summary(examination))
    if not examination.is_sound:
        sys.exit(INCOMPLETE)


def _doctor_summary(examination: Examination) -> str:
    n_damaged = sum(finding.severity == "damaged" for finding in examination.findings)
    state = f"{n_damaged} damaged" if n_damaged else "sound"
    return f"read {examination.n_files} files: {state}"


@click.group()
def export() -> None:
    """Export data from the store."""


@export.command()
@click.argument("comparison")
@click.option("--metric", help="Metric of the preferences. Required if the comparison has several.")
@click.option("--few-shot", type=click.IntRange(1), metavar="N", help="Instead of JSONL, N examples for a prompt.")
@click.option("--output", metavar="FILE", help="Output file. Default: standard output.")
@with_one_line_errors
def preferences(comparison: str, metric: str | None, few_shot: int | None, output: str | None) -> None:
    """Export the preferences of a COMPARISON as JSONL for training: prompt, chosen and rejected answer.

    COMPARISON is an id, an id prefix, or a name (the newest comparison with that name). Ties, verdicts that depend on
    the order of the answers, and missing verdicts are left out; their counts are reported on standard error.
    """
    store = existing_store()
    preferences = preferences_of(store, find_comparison(store, comparison), metric)
    lines, used = "".join(json_text(row) + "\n" for row in preferences.rows), ""
    if few_shot is not None:
        lines, examples = preferences.few_shot(few_shot)
        used = f"; they are in the prompt, so they cannot test it: {', '.join(examples)}"
    if output is None:
        echo(lines, nl=False)
    else:
        write_whole(Path(output), lines)
    echo(one_line(preferences.in_words + used), err=True)


@export.command()
@click.argument("file")
@COPY
@ONLY
@ALL
@with_one_line_errors
def duckdb(file: str, copy: bool, only: tuple[str, ...], is_all: bool) -> None:
    """Export the views of the store to a DuckDB FILE, which DuckDB 1.1 and later read.

    The views read the store's files at query time, so the file also shows new experiments, but opens only where the
    store is at the same path. With --copy, the file holds the rows.
    """
    from evalflows.store.exports import export_tables, export_views

    if only and not copy:
        raise InputError("export duckdb: got --only, which needs --copy")
    store, target = existing_store(), Path(file)
    _report(
        file, export_tables(store, target, only, is_all=is_all) if copy else export_views(store, target, is_all=is_all)
    )


@export.command()
@click.argument("folder")
@ONLY
@ALL
@with_one_line_errors
def parquet(folder: str, only: tuple[str, ...], is_all: bool) -> None:
    """Export the views of the store to a FOLDER, as NAME.parquet."""
    _to_folder(folder, "parquet", only, is_all)


@export.command()
@click.argument("folder")
@ONLY
@ALL
@with_one_line_errors
def csv(folder: str, only: tuple[str, ...], is_all: bool) -> None:
    """Export the views of the store to a FOLDER, as NAME.csv.

    Texts that a spreadsheet may take for formulas get a leading apostrophe.
    """
    _to_folder(folder, "csv", only, is_all)


@export.command()
@click.argument("url")
@SCHEMA
@ONLY
@ALL
@with_one_line_errors
def postgres(url: str, schema: str, only: tuple[str, ...], is_all: bool) -> None:
    """Export the views of the store to tables in PostgreSQL, in one transaction.

    URL is postgresql://user@host:port/database; missing parts are taken from PGHOST, PGUSER, PGPASSWORD and so on.
    """
    from evalflows.store.postgres import export_postgres

    _report(f"schema {schema}", export_postgres(existing_store(), url, schema, only, is_all=is_all))


def _to_folder(folder: str, form: Literal["parquet", "csv"], only: tuple[str, ...], is_all: bool) -> None:
    from evalflows.store.exports import export_folder

    _report(folder, export_folder(existing_store(), Path(folder), form, only, is_all=is_all), f".{form}")


def _report(target: str, exported: Sequence[Exported], ending: str = "") -> None:
    written = [entry for entry in exported if entry.is_written]
    kind = "views" if any(entry.rows is None for entry in exported) else "tables"
    rows = f" ({sum(entry.rows or 0 for entry in written):,} rows)" if written and kind == "tables" else ""
    named = [f"{entry.name}{ending}" for entry in exported if entry.name in FIRST and not entry.is_left_out]
    first = f"; start with {' and '.join(sorted(named, reverse=True))} (docs/guides/bi.md)" if named else ""
    n_left_out = sum(entry.is_left_out for entry in exported)
    left_out = f", {n_left_out} empty ones left out (--all)" if n_left_out else ""
    unchanged = f"{len(exported) - len(written) - n_left_out} unchanged"
    echo(one_line(f"{target}: {len(written)} {kind} written{rows}, {unchanged}{left_out}{first}"))


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
@with_one_line_errors
def sql(query: str | None, form: str, output: str | None, timeout_s: float) -> None:
    """Run a SQL QUERY on the store. Without QUERY, list the marts, then the tables, one per line.

    A query can read only the store: no other files, no network, no extensions. `--format json` and csv print all
    digits.
    """
    if form == "parquet" and (query is None or output is None):
        raise InputError("sql: got --format parquet, which needs a query and --output FILE")
    if query is None:
        views = [
            (path.stem, ", ".join(grain(path)), _about(path.read_text(encoding="utf-8")))
            for path in sorted(view_files(), key=lambda path: (not is_mart(path), path.stem))
        ]
        with _stdout_to(output):
            if form == "table":
                # A line for each view: its name, and what it is about; in a terminal, cut to its width.
                terminal, width = console(), max(len(name) for name, *_ in views)
                for name, _, about in views:
                    line = Text(f"{name:<{width}}  {about}")
                    if terminal.is_terminal:
                        line.truncate(terminal.width, overflow="ellipsis")
                    echo(line.plain)
            else:
                _print_rows(("view", "one row per", "about"), views, form)
        return
    store = existing_store()
    with _ended_at_once(timeout_s + GRACE_S, memory_limit_bytes()):
        relation = select_from(store, query, timeout_s)
        if form == "parquet":
            write_query(relation, Path(output or ""))
        rows = [] if form == "parquet" else relation.fetchall()
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
    """Return a value for JSON: JSON text is parsed, decimals become floats, NaN becomes null."""
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
        from evalflows.reports.formats import escaped, markdown_table

        cells = ([_shown(value) for value in row] for row in rows)
        echo(markdown_table([*map(escaped, columns)], cells))
    else:
        _print_table(columns, rows)


def _shown(value: Any) -> str:
    """Return a value for reading: null is empty, and a float has six significant digits, or its whole part."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    return "" if value is None else str(value)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table; in a terminal at most SHOWN of them, and how many there are."""
    terminal, out = console(), table(*columns, wrapped=("about",))
    is_plan = list(columns) == ["explain_key", "explain_value"]  # drawn over several lines
    shown = rows[:ROWS_SHOWN] if terminal.is_terminal else rows
    for row in shown:
        out.add_row(*(Text(_shown(value), lines=is_plan) for value in row))
    terminal.print(out)
    if shown and not out.fits(terminal.width):
        wide = f"{len(columns)} columns are too wide for a table of {terminal.width} characters, so each row is a block"
        echo_error(f"{wide}; for a table, select fewer, or use --format md or csv")
    if len(rows) > len(shown):
        echo(f"{len(shown)} of {len(rows):,} rows; all of them: --format csv, or json")
