"""Metrics of production by hour or day, and by slice."""

from typing import Literal

import click

from evalflows.analysis.figures import estimate_text, figure
from evalflows.analysis.monitoring import WindowFigures, window_figures
from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Table, Text, console, echo, table
from evalflows.reports.idle_rules import rules_that_could_not_look
from evalflows.specs.escaping import one_line
from evalflows.specs.watch import ALL, check_dimension
from evalflows.store.store import existing_store

DAYS = {"day": 28, "hour": 2}
"""Days that are shown unless --days says otherwise."""


@click.command()
@click.argument("evaluation")
@click.option("--window", type=click.Choice(["hour", "day"]), default="day", help="Length of the windows, in UTC.")
@click.option(
    "--slice",
    "dimensions",
    multiple=True,
    metavar="DIMENSION",
    callback=lambda _context, _option, names: [*map(_dimension, names)],
    help="Also one row per value of tag, version, model, environment or a field such as metadata.plan. Repeatable.",
)
@click.option("--metric", "metrics", multiple=True, help="Only this metric. Repeatable.")
@click.option(
    "--days", type=click.IntRange(1), help="Number of days up to the last judged day. Default: 28, or 2 for hours."
)
@FORMAT
@with_one_line_errors
def windows(
    evaluation: str,
    window: Literal["hour", "day"],
    dimensions: tuple[str, ...],
    metrics: tuple[str, ...],
    days: int | None,
    form: str,
) -> None:
    """Show the metrics of a trace EVALUATION by hour or day, and by slice.

    Late judgements are included, so a window can differ from what a watch rule saw.
    """
    store = existing_store()
    found = window_figures(
        store, evaluation, size=window, dimensions=dimensions, metrics=metrics, days=days or DAYS[window]
    )
    if form == "json":
        print_json({"evaluation": evaluation, "window": window, "windows": found})
    elif found:
        console().print(_listed_window(found, window))
    else:
        echo(one_line(f"no windows of {evaluation!r} with such a metric"))
    if form != "json":
        for sentence in rules_that_could_not_look(store, evaluation):
            console().print(Text(sentence, "yellow"))


def _dimension(name: str) -> str:
    try:
        return check_dimension(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _listed_window(found: list[WindowFigures], window: str) -> Table:
    out = table("metric", "slice", "window (UTC)", "n", "mean", "failed", "p50/p95 s", "cost USD", headings=2)
    for row in found:
        mean = estimate_text(row.mean, row.ci_low, row.ci_high, row.metric)
        when = f"{row.window_start:%Y-%m-%d}" if window == "day" else f"{row.window_start:%Y-%m-%d %H:%M}"
        failed = "" if row.failure_share is None else f"{row.failure_share:.1%}"
        latency = "" if row.latency_p50_s is None else f"{row.latency_p50_s:.2f}/{row.latency_p95_s:.2f}"
        cost = "" if row.cost_usd is None else figure(row.cost_usd, "cost", digits=4)
        out.add_row(row.metric, "" if row.slice == ALL else row.slice, when, str(row.n), mean, failed, latency, cost)
    return out
