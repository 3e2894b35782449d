"""Find the weights of a composite that order cases as people, or users, do."""

import re
from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, table
from evalflows.specs.errors import InputError, short
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import existing_store

if TYPE_CHECKING:
    from evalflows.analysis.calibration import Calibration


@click.command()
@click.argument("experiment")
@click.argument("ranked", type=click.Path(), required=False)
@click.option("--labels", metavar="METRIC", help="Instead of RANKED: the metric of people's labels or users' thumbs.")
@click.option("--composite", help="The composite. Default: the only one.")
@FORMAT
@with_one_line_errors
def calibrate(experiment: str, ranked: str | None, labels: str | None, composite: str | None, form: str) -> None:
    """Find the weights of a composite that order cases as people ranked or labelled them.

    RANKED is a file (.csv, .jsonl and so on) of 10 to 20 cases with the columns `example_id` and `rank`, 1 for the best
    answer of EXPERIMENT; equal ranks are ties. With --labels, EXPERIMENT may be a trace evaluation, to find which of
    its scores predict users' thumbs. Nothing is stored.
    """
    from evalflows.analysis import calibration  # late: specs are slow to import

    if (ranked is None) == (labels is None):
        raise InputError(f"calibrate: got {'both' if ranked else 'neither'}, wanted RANKED or --labels")
    store = existing_store()
    if labels is not None:
        found = calibration.calibrate_by_labels(store, experiment, composite, labels)
    else:
        (identity,) = find_experiments(store, experiment, just_one=True)
        found = calibration.calibrate(store, identity, composite, _ranks(ranked or ""))
    if form == "json":
        print_json(found)
    else:
        print_calibration(found)


def _ranks(path: str) -> dict[str, float]:
    """Return the rank of each example in a file. Raise InputError for a row without one, and for an example twice."""
    from evalflows.store.file_formats import read_rows

    ranks: dict[str, float] = {}
    for number, row in read_rows(path):
        example, rank = row.get("example_id", row.get("id")), str(row.get("rank"))
        if example is None or not re.fullmatch(r"\d+(\.\d+)?", rank):
            raise InputError(f"{path}: row {number}: got {short(row)}, wanted an example_id, and a number as rank")
        if str(example) in ranks:
            raise InputError(f"{path}: row {number}: example {str(example)!r} is ranked twice, wanted one rank")
        ranks[str(example)] = float(rank)
    return ranks


def print_calibration(found: "Calibration") -> None:
    """Print the weights with their intervals, as a table and as lines of a spec."""
    out = console()
    for sentence in found.sentences:
        out.print(Text(sentence, style="yellow" if found.reason else "bold"))
    if found.n_left_out:
        out.print(Text(f"{found.n_left_out} further cases do not have {found.composite}, and are left out"))
    if found.n_final:
        out.print(Text(f"{found.n_final} cases are of final examples, and are left out: a gate tests on these"))
    if found.reason:
        return
    rows = table("metric", "declared", "weight", "95 %", headings=1)
    for metric in found.metrics:
        rows.add_row(
            metric.metric, f"{metric.declared:.2f}", f"{metric.weight:.2f}", f"{metric.low:.2f} to {metric.high:.2f}"
        )
    out.print(rows)
    weights = ", ".join(f"{metric.metric}: {metric.weight:.2f}" for metric in found.metrics)
    out.print(Text(f"weights: {{{weights}}}"))
