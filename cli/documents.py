"""Output for programs: with `--format json`, standard output holds one JSON document and nothing else."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

from evalflows.cli.terminal import echo
from evalflows.specs.safe_text import json_text

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: one document on standard output, and nothing else.",
)


def print_json(document: Any) -> None:
    """Print a document. Raise ValueError for a NaN in it."""
    echo(json_text(document, indent=2, allow_nan=False))


@contextmanager
def stdout_for(form: str) -> Iterator[None]:
    """With json, send to standard error what the block prints: the user's code, libraries, and their processes."""
    if form != "json":
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
