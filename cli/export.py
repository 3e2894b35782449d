"""Export data from the store. Does not load Prefect."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import json_text, one_line
from evalflows.store.existing import existing_store
from evalflows.store.exports.relations import Exported
from evalflows.store.exports.whole_files import write_whole
from evalflows.store.queries.lookup import find_comparison
from evalflows.store.queries.preferences import preferences_of


@click.group()
def export() -> None:
    """Export data from the store."""


@export.command()
@click.argument("comparison")
@click.option("--metric", help="Metric of the preferences. Required if the comparison has several.")
@click.option("--output", metavar="FILE", help="Output file. Default: standard output.")
@VERBOSE
def preferences(comparison: str, metric: str | None, output: str | None, verbose: bool) -> None:
    """Export the preferences of a COMPARISON as JSONL for training: prompt, chosen and rejected answer.

    COMPARISON is an id, an id prefix, or a name (the newest comparison with that name). Ties, verdicts that depend on
    the order of the answers, and missing verdicts are left out; their numbers are reported on standard error.
    """
    with one_line_errors(verbose):
        store = existing_store()
        preferences = preferences_of(store, find_comparison(store, comparison), metric)
        lines = "".join(json_text(row) + "\n" for row in preferences.rows)
        if output is None:
            echo(lines, nl=False)
        else:
            write_whole(Path(output), lines)
        echo(preferences.in_words, err=True)


COPY = click.option("--copy", is_flag=True, help="Tables that stand alone, instead of views that read the store.")
ONLY = click.option(
    "--only", metavar="NAME", multiple=True, help="Export this view alone; repeatable. `evalflows sql` lists them."
)
SCHEMA = click.option("--schema", default="evalflows", show_default=True, help="The schema that holds the tables.")


@export.command()
@click.argument("file")
@COPY
@ONLY
@VERBOSE
def duckdb(file: str, copy: bool, only: tuple[str, ...], verbose: bool) -> None:
    """Export every view of the store to a DuckDB FILE, which DuckDB 1.1 and later read.

    The views read the store's files at query time, so the file need not be exported again for new experiments, and
    opens where the store is at the same path. With --copy, the file holds the rows.
    """
    with one_line_errors(verbose):
        from evalflows.store.exports.duckdb_file import export_tables, export_views

        if only and not copy:
            raise InputError("export duckdb: got --only, which needs --copy")
        store, target = existing_store(), Path(file)
        _report(file, export_tables(store, target, only) if copy else export_views(store, target))


@export.command()
@click.argument("folder")
@ONLY
@VERBOSE
def parquet(folder: str, only: tuple[str, ...], verbose: bool) -> None:
    """Export every view of the store to a FOLDER, as NAME.parquet."""
    _to_folder(folder, "parquet", only, verbose)


@export.command()
@click.argument("folder")
@ONLY
@VERBOSE
def csv(folder: str, only: tuple[str, ...], verbose: bool) -> None:
    """Export every view of the store to a FOLDER, as NAME.csv.

    Texts that a spreadsheet may take for formulas get a leading apostrophe.
    """
    _to_folder(folder, "csv", only, verbose)


@export.command()
@click.argument("url")
@SCHEMA
@ONLY
@VERBOSE
def postgres(url: str, schema: str, only: tuple[str, ...], verbose: bool) -> None:
    """Export every view of the store to tables in PostgreSQL, in one transaction.

    URL is postgresql://user@host:port/database; what it leaves out is taken from PGHOST, PGUSER, PGPASSWORD and so on.
    """
    with one_line_errors(verbose):
        from evalflows.store.exports.postgres import export_postgres

        _report(f"schema {schema}", export_postgres(existing_store(), url, schema, only))


def _to_folder(folder: str, form: Literal["parquet", "csv"], only: tuple[str, ...], verbose: bool) -> None:
    with one_line_errors(verbose):
        from evalflows.store.exports.folder import export_folder

        _report(folder, export_folder(existing_store(), Path(folder), form, only), f".{form}")


FIRST = ("results", "item_scores")
"""What answers most questions."""


def _report(place: str, exported: Sequence[Exported], ending: str = "") -> None:
    written = [one for one in exported if one.is_written]
    kind = "views" if any(one.rows is None for one in exported) else "tables"
    rows = f" ({sum(one.rows or 0 for one in written):,} rows)" if written and kind == "tables" else ""
    named = [f"{one.name}{ending}" for one in exported if one.name in FIRST]
    first = f"; start with {' and '.join(sorted(named, reverse=True))} (docs/bi.md)" if named else ""
    echo(one_line(f"{place}: {len(written)} {kind} written{rows}, {len(exported) - len(written)} unchanged{first}"))
