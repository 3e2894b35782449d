"""Start the evaluations of a repository. Does not load Prefect."""

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.scaffold import scaffold
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo

NEXT = """
Next, without a key or a network:
  evalflows gate evals/experiment.yaml  # may the candidate be released?
  python -m pytest evals/test_evals.py  # the same as tests; needs pytest
Then replace the functions in evals/target.py by calls of your application."""


@click.command()
@VERBOSE
def init(verbose: bool) -> None:
    """Start the evaluations of the repository in the current folder: write a small example that runs as it is.

    An experiment with a gate, its questions, targets, an evaluator and a pytest test in evals/; prefect.yaml with
    deployments; a GitHub workflow that decides the gate. Files that exist are kept.
    """
    with one_line_errors(verbose):
        for line in scaffold():
            echo(line)
        echo(NEXT)
