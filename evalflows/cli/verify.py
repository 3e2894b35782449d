"""Verify a document that --evidence wrote."""

import sys
from pathlib import Path

import click

from evalflows.cli.late_commands import with_one_line_errors
from evalflows.cli.output import echo, echo_error
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line

ANOTHER, UNSIGNED = 1, 4
"""Exit codes, as of `explain --again`."""


@click.command()
@click.argument("file")
@click.option("--signers", metavar="FILE", help="The document must be signed by a key in this file.")
@with_one_line_errors
def verify(file: str, signers: str | None) -> None:
    """Verify that a FILE of evidence is intact, and that its scores give its figures. No store is needed.

    Exit code: 0 if it holds, for any decision; 1 if not, 4 if a required signature is missing, 2 if it is not evidence.
    """
    from evalflows.api.evidence import verify as verify_evidence  # late: scipy is slow to import

    if signers is not None and not Path(signers).is_file():
        raise InputError(f"--signers: got {signers!r}, wanted a file of allowed signers")
    found = verify_evidence(file, None if signers is None else Path(signers))
    for line in found.lines:
        echo(one_line(line))
    if found.problem is not None:
        echo_error(f"{file}: {found.problem}")
        sys.exit(ANOTHER)
    if signers is not None and found.signed_by is None:
        echo_error(f"{file}: not signed by a key in {signers}")
        sys.exit(UNSIGNED)
    echo(one_line(f"verified{f', signed by {found.signed_by}' if found.signed_by else ''}"))
