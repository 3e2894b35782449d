"""Reports that can be sent: HTML, Markdown, JSON and JUnit. Nothing here loads Prefect."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

import click

from evalflows.cli.documents import json_document
from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.reports.sendable import Reported, reported
from evalflows.specs.errors import InputError
from evalflows.store.existing import existing_store
from evalflows.store.exports.whole_files import write_whole

Form = Literal["html", "md", "json", "junit"]

FORMS: Mapping[str, Form] = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".xml": "junit"}
"""The format of a file, by the end of its name."""

STDOUT = "-"


@click.command()
@click.argument("reference", metavar="EXPERIMENT|DECISION|COMPARISON")
@click.option("-o", "--output", metavar="FILE", help="Output file; it is replaced. -: standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    help="Default: by the end of FILE's name, else html. junit needs decisions.",
)
@VERBOSE
def report(reference: str, output: str | None, form: Form | None, verbose: bool) -> None:
    """Write a report of an EXPERIMENT, a DECISION or a COMPARISON as one file that can be sent.

    It is given by id, id prefix or name; a gate's name means its newest decision. The HTML file holds the dashboard's
    pages with their tables and plots, and needs no other file and no network.
    """
    with one_line_errors(verbose):
        ending = Path(output or "").suffix.lower()
        if form is None and ending and ending not in FORMS:
            raise InputError(
                f"report: got a file that ends in {ending!r}, wanted one of {', '.join(FORMS)}, or --format"
            )
        chosen = form or FORMS.get(ending, "html")
        if output is None and chosen == "html":
            raise InputError("report: got no file, wanted -o FILE.html, or --format md, json or junit")
        text = WRITERS[chosen](reported(existing_store(), reference))
        if output is None or output == STDOUT:
            echo(text, nl=False)
        else:
            write_whole(Path(output), text)


def _html(what: Reported) -> str:
    from evalflows.pages.report import report_on  # late: the other formats need no templates

    return report_on(what)


WRITERS: Mapping[Form, Callable[[Reported], str]] = {
    "html": _html,
    "md": lambda what: what.markdown,
    "json": lambda what: json_document(what.document),
    "junit": lambda what: what.junit,
}
