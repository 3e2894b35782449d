"""How far a winner rests on the weights of a composite, and weights from cases that people put in order."""

from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import VERBOSE_RUN, console, table
from store.robustness_report import ParetoReport, RobustnessReport, WeightsReport

if TYPE_CHECKING:
    from flows.check_robustness import CalibratedWeights


def _listed(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@click.command()
@click.argument("experiment")
@click.option("--composite", "composites", multiple=True, help="Look into this composite only. Repeatable.")
@click.option(
    "--change", type=float, default=0.2, show_default=True, help="How much lower and higher each weight goes."
)
@click.option("--over", callback=_listed, help="The metrics of the Pareto front, such as contains,latency.")
@VERBOSE_RUN
def robustness(experiment: str, composites: tuple[str, ...], change: float, over: list[str], verbose: bool) -> None:
    """Say whether other weights of its composites would make another system of an EXPERIMENT the winner.

    It is a run group, or an experiment of it: all systems of the same start are put side by side.
    """
    from cli.running import prepared

    with one_line_errors(verbose):
        with prepared(verbose, experiment):
            from flows.check_robustness import robustness as look_into

            report = look_into(experiment, composites=composites, change=change, over=over)
        print_robustness(report)


@click.command()
@click.argument("cases", type=click.Path(dir_okay=False))
@click.option("--metrics", callback=_listed, help="The parts, such as contains,short; all columns of numbers if not.")
@click.option("--of", "experiment", help="An experiment whose spec declares range and direction of the metrics.")
@click.option("--name", default="quality", show_default=True, help="What the composite is called.")
@VERBOSE_RUN
def calibrate(cases: str, metrics: list[str], experiment: str | None, name: str, verbose: bool) -> None:
    """Find the weights under which a composite orders CASES as people did: 10 to 20 rows of a file.

    A column for each metric, and one `rank` (1 is the best) or `score` (higher is better) that people gave.
    """
    from cli.running import prepared

    with one_line_errors(verbose):
        with prepared(verbose, cases):
            from flows.check_robustness import calibrate_weights

            found = calibrate_weights(cases, metrics, experiment=experiment)
        _print_weights(found, name)


def print_robustness(report: RobustnessReport) -> None:
    """Print who wins as declared, with each weight changed, under all weights; who is beaten; and that in words."""
    out = console()
    for one in report.composites:
        out.print(_systems(one))
        if one.changes:
            out.print(_changes(one))
        for sentence in one.sentences:
            out.print(Text(sentence, style="yellow" if one.passed is False else "bold"))
    if report.pareto:
        out.print(_front(report.pareto))
        for sentence in report.pareto.sentences:
            out.print(Text(sentence, style="bold"))


def _systems(one: WeightsReport) -> Table:
    out = table("composite", "system", "mean", "wins under", "standard error")
    for cells in one.systems:
        out.add_row(one.composite, *cells)
    return out


def _changes(one: WeightsReport) -> Table:
    out = table("weight of", "declared", "changed to", "ahead")
    for cells in one.changes:
        out.add_row(*cells)
    return out


def _front(report: ParetoReport) -> Table:
    out = table("system", *report.metrics, "on the front", "in resamples", "beaten by")
    for cells in report.systems:
        out.add_row(*cells)
    return out


def _print_weights(found: "CalibratedWeights", name: str) -> None:
    out, figures = console(), found.figures
    parts = table("metric", "weight", "interval", "orders alone")
    for place, metric in enumerate(found.metrics):
        if figures.weights and figures.lows and figures.highs and figures.alone:
            span = f"[{figures.lows[place]:.3f}, {figures.highs[place]:.3f}]"
            parts.add_row(metric, f"{figures.weights[place]:.3f}", span, f"{figures.alone[place]:.0%}")
    if figures.weights:
        out.print(parts)
    for sentence in found.sentences:
        out.print(Text(sentence, style="bold"))
    for warning in found.warnings:
        out.print(Text(f"warning: {warning}", style="yellow"))
    if found.weights:
        weights = ", ".join(f"{metric}: {weight:g}" for metric, weight in found.weights.items())
        out.print(f"composites:\n  - {{name: {name}, weights: {{{weights}}}}}", soft_wrap=True)
