"""How robust a ranking is to the weights of its composite."""

from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, VERBOSE_RUN, one_line_errors, print_json, stdout_for
from evalflows.cli.output import Table, Text, console, table
from evalflows.store.store import existing_store

if TYPE_CHECKING:
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
    from evalflows.cli.running import prepare_runs

    with one_line_errors(verbose):
        existing_store()
        with stdout_for(form), prepare_runs(verbose):
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
