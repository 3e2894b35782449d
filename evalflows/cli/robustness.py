"""The weights of a composite: how robust the ranking is to them, and which ones order cases as people do."""

import re
from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, VERBOSE, VERBOSE_RUN, one_line_errors, print_json, stdout_for
from evalflows.cli.output import Table, Text, console, table
from evalflows.specs.errors import InputError, short
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.sql import existing_store

if TYPE_CHECKING:
    from evalflows.analysis.calibration import Calibration
    from evalflows.analysis.robustness import ParetoReport, RobustnessReport, WeightsReport


def _listed(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@click.command()
@click.argument("experiment")
@click.option("--composite", "composites", multiple=True, help="Check this composite only. Repeatable.")
@click.option(
    "--change", type=float, default=0.2, show_default=True, help="Relative change of each weight, down and up."
)
@click.option("--over", callback=_listed, help="Comma-separated metrics of the Pareto front, such as contains,latency.")
@FORMAT
@VERBOSE_RUN
def robustness(
    experiment: str, composites: tuple[str, ...], change: float, over: list[str], form: str, verbose: bool
) -> None:
    """Check whether other composite weights would make another system the winner.

    EXPERIMENT is a run group, or an experiment in it: all systems of the run group are compared.
    """
    from evalflows.cli.running import prepared

    with one_line_errors(verbose):
        existing_store()
        with stdout_for(form), prepared(verbose):
            from evalflows.api.planning import robustness as check_robustness

            report = check_robustness(experiment, composites=composites, change=change, over=over)
        if form == "json":
            print_json(report)
        else:
            print_robustness(report)


def print_robustness(report: "RobustnessReport") -> None:
    """Print the winners under declared and changed weights, the Pareto front, and a summary in sentences."""
    out = console()
    for composite in report.composites:
        out.print(_systems(composite))
        if composite.changes:
            out.print(_changes(composite))
        for sentence in composite.sentences:
            out.print(Text(sentence, style="yellow" if composite.passed is False else "bold"))
    if report.pareto:
        out.print(_front(report.pareto))
        for sentence in report.pareto.sentences:
            out.print(Text(sentence, style="bold"))


def _systems(composite: "WeightsReport") -> Table:
    out = table("composite", "system", "mean", "wins under", "standard error", headings=2)
    for cells in composite.systems:
        out.add_row(composite.composite, *cells)
    return out


def _changes(composite: "WeightsReport") -> Table:
    out = table("weight of", "declared", "changed to", "ahead")
    for cells in composite.changes:
        out.add_row(*cells)
    return out


def _front(report: "ParetoReport") -> Table:
    out = table(
        "system", *report.metrics, "on the front", "in resamples", "dominated by", headings=1, wrapped=("dominated by",)
    )
    for cells in report.systems:
        out.add_row(*cells)
    return out


@click.command()
@click.argument("experiment")
@click.argument("ranked", type=click.Path())
@click.option("--composite", help="The composite. Default: the only one.")
@FORMAT
@VERBOSE
def calibrate(experiment: str, ranked: str, composite: str | None, form: str, verbose: bool) -> None:
    """Find the weights of a composite that order cases as people ranked them.

    RANKED is a file (.csv, .jsonl and so on) of 10 to 20 cases with the columns `example_id` and `rank`, 1 for the best
    answer of EXPERIMENT; equal ranks are ties. Nothing is stored.
    """
    with one_line_errors(verbose):
        from evalflows.analysis.calibration import calibrate as calibrated  # late: specs are slow to import

        store = existing_store()
        (identity,) = find_experiments(store, experiment, just_one=True)
        found = calibrated(store, identity, composite, _ranks(ranked))
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
        out.print(Text(f"{found.n_left_out} ranked examples do not have {found.composite}, and are left out"))
    if found.reason:
        return
    rows = table("metric", "declared", "weight", "95 %", headings=1)
    for one in found.metrics:
        rows.add_row(one.metric, f"{one.declared:.2f}", f"{one.weight:.2f}", f"{one.low:.2f} to {one.high:.2f}")
    out.print(rows)
    weights = ", ".join(f"{one.metric}: {one.weight:.2f}" for one in found.metrics)
    out.print(Text(f"weights: {{{weights}}}"))
