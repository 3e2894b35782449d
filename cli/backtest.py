"""Holding a gate against the past: what it would have said of what is in the store, and how far to trust it."""

import json
from collections import Counter
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from cli.errors import one_line_errors
from cli.gate import STYLES
from cli.look import CHANGES, VERBOSE_RUN, console, table
from store.backtest_report import Backtest, PastDecision

if TYPE_CHECKING:
    from specs.experiment import ExperimentSpec

SHOWN = 20
"""Pairs that the table has at most."""


@click.command()
@click.argument("spec")
@click.option("--gate", "name", help="This gate only; each of the file's where left out.")
@click.option(
    "--replicates",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="How many times each pair is made anew without a difference, and with planted ones; 0: not at all.",
)
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="How many pairs, newest first.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed draws others.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: a line for each gate."
)
@CHANGES
@VERBOSE_RUN
def backtest(spec: str, name: str | None, form: str, changes: tuple[str, ...], verbose: bool, **how: int) -> None:
    """Hold the gates of a SPEC file against all past pairs of experiments in the store, and against pairs of the same
    target: how often they would have blocked, their false alarms, and which falls they would have caught.

    Nothing is run, called or kept.
    """
    from specs.experiment import load_experiment

    with one_line_errors(verbose):
        wanted = load_experiment(spec, changes)
        for found in _found(wanted, name, how):
            if form == "json":
                click.echo(json.dumps(found.as_dict(), default=str, ensure_ascii=False))
            else:
                print_backtest(console(), found)


def _found(spec: "ExperimentSpec", name: str | None, how: dict[str, int]) -> list[Backtest]:
    from flows.backtesting import backtest_gate

    return backtest_gate(spec, name, **how)


def print_backtest(out: Console, found: Backtest) -> None:
    """Print the newest pairs, how many came out how, and all of it in sentences."""
    out.print(Text(f"gate {found.gate}, held against {found.experiments} experiments", style="bold"))
    if found.decisions:
        rows = table("candidate", "baseline", "which is", "decision", "because")
        for one in found.decisions[:SHOWN]:
            conclusion = Text("refused", style="yellow") if one.is_refused else _conclusion(one)
            rows.add_row(one.candidate, one.baseline, _relation(one), conclusion, one.because)
        out.print(rows)
    if (more := len(found.decisions) - SHOWN) > 0:
        counts = Counter("refused" if one.is_refused else one.conclusion for one in found.decisions)
        said = ", ".join(f"{count} {conclusion}" for conclusion, count in counts.most_common())
        out.print(f"  and {more} more; of all {len(found.decisions)}: {said}")
    for sentence in found.sentences:
        out.print(Text(sentence))


def _conclusion(one: PastDecision) -> Text:
    return Text(one.conclusion, style=STYLES[one.conclusion])


def _relation(one: PastDecision) -> str:
    if one.relation == "halves":
        return "its other half"
    said = "the baseline then" if one.relation == "baseline" else "earlier"
    return f"{said}, same target" if one.is_same_target else said
