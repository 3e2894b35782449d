"""Datasets of production: `evalflows dataset from-traces`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.moments import moment
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import one_line

if TYPE_CHECKING:
    from evalflows import TraceDataset


@click.command("from-traces")
@click.option("--name", required=True, help="Name of the dataset, which is created or grows.")
@click.option("--scope", type=click.Choice(["traces", "sessions"]), default="traces", help="What one example is.")
@click.option("--where", help="Only those that meet this condition in SQL: \"version = '1.4'\".")
@click.option("--filter", "filter_", help='Only those that meet this filter in JSON: {"tags": ["production"]}.')
@click.option("--since", help="Only those that began since then, such as 2026-11-01 or 2026-11-01T08:00.")
@click.option("--until", help="Only those that began until then.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of different inputs.")
@click.option(
    "--order",
    type=click.Choice(["newest", "worst", "uncertain", "random"]),
    default="newest",
    show_default=True,
    help="Which come first: worst and uncertain go by the scores of --metric.",
)
@click.option("--metric", help="The metric of the orders worst and uncertain.")
@click.option("--seed", type=int, default=0, help="Seed of the random order.")
@click.option("--mapper", help="A function module:name, or paths: input=input.question,expected_output=metadata.best.")
@click.option(
    "--turns",
    type=click.Choice(["whole", "next"]),
    help="For sessions: an example of each conversation (the default), or of each turn of the assistant.",
)
@click.option("--keep-output-as-reference", is_flag=True, help="Use the application's answer as the reference.")
@click.option(
    "--mask", multiple=True, metavar="NAME=REGEX", help="Mask what matches, too: ticket='T-\\d+'. May be repeated."
)
@VERBOSE
def from_traces(
    name: str,
    where: str | None,
    filter_: str | None,
    since: str | None,
    until: str | None,
    mapper: str | None,
    mask: tuple[str, ...],
    verbose: bool,
    **selection: object,
) -> None:
    """Add production's traces or sessions to a dataset as a new version of it, or create the dataset.

    Duplicates and traces whose input was not captured are left out. API keys, e-mail addresses, phone and card numbers
    and the like become placeholders before anything is written. Examples already in the dataset keep their ids.
    """
    with one_line_errors(verbose):
        if where is not None and filter_ is not None:
            raise InputError("--where and --filter: wanted one of them")
        began = (moment("--since", since), moment("--until", until))
        patterns = _pairs("--mask", mask)
        from evalflows import dataset_from_traces
        from evalflows.cli.running import find_modules_here

        find_modules_here()  # for the mapper
        added = dataset_from_traces(
            name,
            filter=filter_ if where is None else where,
            mapper=_mapper(mapper),
            mask=patterns,
            since=began[0],
            until=began[1],
            **selection,  # type: ignore[arg-type]  # its options are those of the function
        )
        _print(added)


def _print(added: "TraceDataset") -> None:
    counts = added.counts
    kept = added.n_examples - counts.added
    echo(
        one_line(f"{added.name}: {added.snapshot}, {added.n_examples} examples; {counts.added} added, {kept} unchanged")
    )
    left_out = (
        (counts.known, "in the dataset already"),
        (counts.duplicates, "duplicates"),
        (counts.not_captured, "not captured"),
        (counts.unscored, "without a score"),
        (counts.failed, f"could not be mapped: {counts.first_failure}"),
    )
    if told := [f"{n} {what}" for n, what in left_out if n]:
        echo(one_line(f"  left out: {', '.join(told)}"))
    if counts.masked:
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.masked.items()))
        echo(one_line(f"  masked: {kinds}"))


def _mapper(text: str | None) -> str | dict[str, str] | None:
    """Return a function's name as it is, and paths by field."""
    if text is None or "=" not in text:
        return text
    return _pairs("--mapper", text.split(","))


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what texts such as `name=value` say. Raise InputError for others, and for a name given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value or name.strip() in pairs:
            raise InputError(f"{option}: got {text!r}, wanted NAME=VALUE, each name once")
        pairs[name.strip()] = value
    return pairs
