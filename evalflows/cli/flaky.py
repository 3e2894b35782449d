"""Which examples flip under unchanged versions. Nothing here loads Prefect."""

from typing import TYPE_CHECKING

import click

from evalflows.analysis.figures import figure
from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo, table
from evalflows.specs.errors import InputError
from evalflows.store.queries.lookup import find_experiments, newest_on
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.analysis.flaky import FlakyReport


@click.command()
@click.argument("experiment", metavar="[EXPERIMENT|DATASET]", required=False)
@click.option("--metric", help="Only this metric.")
@FORMAT
@with_one_line_errors
def flaky(experiment: str | None, metric: str | None, form: str) -> None:
    """List the examples that flip under unchanged versions, and their effect on a difference.

    All runs of the version of an EXPERIMENT count, across experiments and repetitions. Of a DATASET (default: the
    newest experiment's), or of a spec with several targets, those of all versions count, each version compared with
    itself. An example is flaky if it flips more often than the others do by chance. If no example is flaky, nothing is
    proposed for `quarantine`.
    """
    from evalflows.analysis.flaky import flaky_report  # late: specs are slow to import

    store = existing_store()
    identity, own_version = _found(store, experiment)
    (row,) = store.read("experiments", identity)
    report = flaky_report(store, row, metric, own_version=own_version)
    if form == "json":
        print_json(report.document())
    else:
        _print(report)


def _found(store: Store, reference: str | None) -> tuple[str, bool]:
    """Return the experiment that a reference means, or the newest on a dataset of that name, or of all; and whether it
    means this one only."""
    if (newest := newest_on(store, reference)) is not None:
        return newest, False
    if reference is None:
        raise InputError("flaky: got no experiment in the store, wanted at least one")
    found = find_experiments(store, reference)
    return found[0], len(found) == 1


def _print(report: "FlakyReport") -> None:
    import yaml

    out = console()
    seen = f"{report.experiments} experiment{'s' * (report.experiments != 1)} on {report.dataset}"
    for sentence in report.sentences or [f"no example was repeated under unchanged versions, in {seen}"]:
        out.print(Text(sentence, style="bold"))
    rows = table("example", "metric", "observed", "flip rate", "interval", "sd", "weight", headings=2)
    for column in rows.columns[2:]:
        column.justify = "right"
    for metric in report.metrics:
        for example in metric.flaky:
            rate, ends = example.flip_rate, (example.flip_rate_low, example.flip_rate_high)
            interval = "" if rate is None else " to ".join(f"{end:.2f}" for end in ends if end is not None)
            spread = figure(example.within**0.5, metric.metric)
            cells = (str(example.n), "" if rate is None else f"{rate:.2f}", interval, spread, f"{example.weight:.2f}")
            rows.add_row(example.example_id, metric.metric, *cells)
    if not report.quarantine:
        return
    out.print()
    out.print(rows)
    echo("\nTo quarantine them, paste this into the spec, and say why:\n\nquarantine:")
    for entry in report.quarantine:
        line = yaml.safe_dump(entry, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False)
        echo(f"  - {line}", nl=False)
