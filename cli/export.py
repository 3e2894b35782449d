"""Export data from the store. Does not load Prefect."""

from pathlib import Path

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.specs.safe_text import json_text
from evalflows.store.exports.whole_files import whole_file
from evalflows.store.parquet import Store
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
        store = Store()
        preferences = preferences_of(store, find_comparison(store, comparison), metric)
        lines = "".join(json_text(row) + "\n" for row in preferences.rows)
        if output is None:
            echo(lines, nl=False)
        else:
            _write(Path(output), lines)
        echo(preferences.in_words, err=True)


def _write(target: Path, text: str) -> None:
    with whole_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
