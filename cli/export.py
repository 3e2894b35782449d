"""Taking what is stored elsewhere: export preferences. It does not load Prefect."""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

import click

from cli.errors import one_line_errors
from cli.look import VERBOSE
from specs.errors import InputError
from store.lookup import find_comparison
from store.parquet import Store
from store.preferences import preferences_of


@click.group()
def export() -> None:
    """Take what is stored elsewhere."""


@export.command()
@click.argument("comparison")
@click.option("--metric", help="By which metric; needed where the comparison has several.")
@click.option("--output", metavar="FILE", help="Where to write them; standard output where left out.")
@VERBOSE
def preferences(comparison: str, metric: str | None, output: str | None, verbose: bool) -> None:
    """Write the preferences of a COMPARISON as JSONL, for training: prompt, chosen and rejected answer.

    COMPARISON is an id, the beginning of one, or a name, which means the newest of that name. Ties, verdicts that
    differ by the order shown, and what is missing are left out; how many is said on standard error.
    """
    with one_line_errors(verbose):
        store = Store()
        found = preferences_of(store, find_comparison(store, comparison), metric)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows)
        if output is None:
            click.echo(lines, nl=False)
        else:
            _write(Path(output), lines)
        click.echo(found.in_words, err=True)


def _write(target: Path, text: str) -> None:
    """Write beside the target, then rename: whole or not at all. Raises InputError for a file that cannot be."""
    temporary = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it bears its own name by now, or never was
            temporary.unlink()
