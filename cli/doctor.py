"""Examine the store's files. Does not load Prefect."""

import sys
from dataclasses import asdict

import click

from evalflows.cli.errors import INCOMPLETE, one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.specs.safe_text import json_text, one_line
from evalflows.store.doctor import Examination, examine
from evalflows.store.existing import existing_store


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="json: one object per finding."
)
@VERBOSE
def doctor(form: str, verbose: bool) -> None:
    """Read every file of the store, and say what is damaged and what to do.

    Checks checksums, manifests, footers, columns, repeated keys, missing rows, foreign files and the spool. The only
    repair is to write missing empty files again, which loses nothing. Exit code 0: sound; 4: something is damaged.
    """
    with one_line_errors(verbose):
        examination = examine(existing_store())
        for finding in examination.findings:
            if form == "json":
                echo(json_text(asdict(finding)))
            else:
                echo(one_line(f"{finding.severity}: {finding.path}: {finding.problem}; {finding.advice}"))
        echo(_summary(examination), err=form == "json")
        if not examination.is_sound:
            sys.exit(INCOMPLETE)


def _summary(examination: Examination) -> str:
    n_damaged = sum(finding.severity == "damaged" for finding in examination.findings)
    state = f"{n_damaged} damaged" if n_damaged else "sound"
    without = examination.n_without_checksum
    unverified = f", {without} of them readable but without a checksum" if without else ""
    return f"read {examination.n_files} files{unverified}: {state}"
