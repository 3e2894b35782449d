"""Write results as one file to share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from evalflows.cli.late_commands import json_document, with_one_line_errors
from evalflows.cli.output import echo, echo_bytes
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.store.exports import write_whole
from evalflows.store.records import now
from evalflows.store.store import existing_store

if TYPE_CHECKING:
    from evalflows.reports.markdown_pages import Reported

Form = Literal["html", "png", "md", "json", "junit"]

FORMS: Mapping[str, Form] = {
    ".html": "html",
    ".htm": "html",
    ".png": "png",
    ".md": "md",
    ".json": "json",
    ".xml": "junit",
}
"""The format of a file, by the end of its name."""

STDOUT = "-"


@click.command()
@click.argument("reference", metavar="EXPERIMENT|DECISION|COMPARISON")
@click.option("-o", "--output", metavar="FILE", help="Output file; it is replaced. -: standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    help="Default: by the extension of FILE, else html. junit needs decisions.",
)
@with_one_line_errors
def report(reference: str, output: str | None, form: Form | None) -> None:
    """Write a report of an EXPERIMENT, a DECISION or a COMPARISON as one file to share.

    It is given by id, id prefix or name; a gate's name means its newest decision. The HTML file holds the dashboard's
    pages with their tables and plots, and needs no other files and no network. A PNG file is a picture of the verdict
    and the intervals, for a chat.
    """
    ending = Path(output or "").suffix.lower()
    if form is None and ending and ending not in FORMS:
        raise InputError(f"report: got a file that ends in {ending!r}, wanted one of {', '.join(FORMS)}, or --format")
    chosen = form or FORMS.get(ending, "html")
    if output is None and chosen in ("html", "png"):
        raise InputError(f"report: got no file, wanted -o FILE.{chosen}, or --format md, json or junit")
    from evalflows.reports.markdown_pages import reported

    written = WRITERS[chosen](reported(existing_store(), reference))
    if output is not None and output != STDOUT:
        write_whole(Path(output), written)
        echo(one_line(f"wrote {output}"))
    elif isinstance(written, bytes):
        echo_bytes(written)
    else:
        echo(written, nl=False)


def _html(what: "Reported") -> str:
    from evalflows.dashboard.report_file import report_on  # late: the other formats need no templates

    return report_on(what)


def _png(what: "Reported") -> bytes:
    from evalflows.reports.picture import card_of, picture  # late: the other formats draw nothing

    return picture(card_of(what), now())


WRITERS: Mapping[Form, Callable[["Reported"], str | bytes]] = {
    "html": _html,
    "png": _png,
    "md": lambda what: what.markdown,
    "json": lambda what: json_document(what.document),
    "junit": lambda what: what.junit,
}
