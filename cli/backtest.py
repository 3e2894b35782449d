"""Backtest a gate: what it would have decided on past pairs of experiments, and its error rates."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.gate import STYLES
from evalflows.cli.show import CHANGES, VERBOSE_RUN
from evalflows.cli.tables import table
from evalflows.cli.terminal import Console, Text, console, echo
from evalflows.reports.backtest import Backtest, PastDecision
from evalflows.specs.safe_text import json_text

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec

SHOWN = 20
"""Maximum number of pairs shown in the table."""


@click.command()
@click.argument("spec")
@click.option("--gate", "name", help="Name of the gate. Default: every gate of the file.")
@click.option(
    "--replicates",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Simulated replicates per pair, without a difference and with injected losses; 0: none.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=200, show_default=True, help="Maximum number of pairs, newest first."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the replicates.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: one line per gate."
)
@CHANGES
@VERBOSE_RUN
def backtest(spec: str, name: str | None, form: str, changes: tuple[str, ...], verbose: bool, **settings: int) -> None:
    """Backtest the gates of a SPEC file on all past pairs of experiments.

    Pairs of the same target are included. The result: how often the gates would have blocked a release, their
    false-alarm rate, and which losses they would have detected. Nothing is run, called or stored.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        experiment = load_experiment(spec, changes)
        for result in _backtests(experiment, name, settings):
            if form == "json":
                echo(json_text(result.as_dict(), default=str))
            else:
                print_backtest(console(), result)


def _backtests(spec: "ExperimentSpec", name: str | None, settings: dict[str, int]) -> list[Backtest]:
    from evalflows.flows.api.backtest import backtest_gate

    return backtest_gate(spec, name, **settings)


def print_backtest(out: Console, result: Backtest) -> None:
    """Print the newest pairs, the number of pairs by conclusion, and a summary in sentences."""
    out.print(Text(f"gate {result.gate}, backtested on {result.experiments} experiments", style="bold"))
    if result.decisions:
        rows = table("candidate", "baseline", "baseline is", "decision", "because", headings=2, wrapped=("because",))
        for decision in result.decisions[:SHOWN]:
            conclusion = Text("refused", style="yellow") if decision.is_refused else _conclusion(decision)
            rows.add_row(decision.candidate, decision.baseline, _relation(decision), conclusion, decision.because)
        out.print(rows)
    if (more := len(result.decisions) - SHOWN) > 0:
        counts = Counter("refused" if past.is_refused else past.conclusion for past in result.decisions)
        total = ", ".join(f"{count} {conclusion}" for conclusion, count in counts.most_common())
        out.print(f"  and {more} more; all {len(result.decisions)}: {total}")
    for sentence in result.sentences:
        out.print(Text(sentence))


def _conclusion(decision: PastDecision) -> Text:
    return Text(decision.conclusion, style=STYLES[decision.conclusion])


def _relation(decision: PastDecision) -> str:
    if decision.relation == "halves":
        return "its other half"
    relation = "approved then" if decision.relation == "baseline" else "earlier"
    return f"{relation}, same target" if decision.is_same_target else relation
