"""Output for programs: with `--format json`, standard output holds one JSON document and nothing else."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from evalflows.cli.terminal import echo, stdout_to_stderr
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
    echo(json_document(document), nl=False)


def json_document(document: Any) -> str:
    """Return a document as the text of a file. Raise ValueError for a NaN in it."""
    return f"{json_text(document, indent=2, allow_nan=False)}\n"


def stdout_for(form: str) -> AbstractContextManager[None]:
    """With json, send to standard error what the block prints: the user's code, libraries, and their processes."""
    return stdout_to_stderr() if form == "json" else nullcontext()
