"""Backtest a gate: what it would have decided on past pairs of experiments, and its error rates."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import CHANGES, DECISION_STYLES, VERBOSE_RUN
from evalflows.cli.tables import table
from evalflows.cli.terminal import Console, Text, console, echo
from evalflows.reports.document import plain
from evalflows.specs.safe_text import json_text
from evalflows.store.parquet import Store
from evalflows.store.queries.kept_reports import keep_report

if TYPE_CHECKING:
    from evalflows.reports.backtest import Backtest
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
    false-alarm rate, and which losses they would have detected. Nothing is run or called, and
    nothing but the backtest is stored.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        experiment = load_experiment(spec, changes)
        for result in _backtests(experiment, name, settings):
            document = plain(result.as_dict())
            identity = keep_report(Store(), "backtest", result.gate, document, "\n".join(document["sentences"]))
            if form == "json":
                echo(json_text({"backtest_id": identity, **document}))
            else:
                print_backtest(console(), document)
                echo(f"kept: evalflows show {identity}")


def _backtests(spec: "ExperimentSpec", name: str | None, settings: dict[str, int]) -> "list[Backtest]":
    from evalflows.flows.api.backtest import backtest_gate

    return backtest_gate(spec, name, **settings)


def print_backtest(out: Console, backtest: Mapping[str, Any]) -> None:
    """Print the newest pairs, the number of pairs by conclusion, and a summary in sentences.

    `backtest` is the document of `--format json`.
    """
    decisions = backtest["decisions"]
    out.print(Text(f"gate {backtest['gate']}, backtested on {backtest['experiments']} experiments", style="bold"))
    if decisions:
        rows = table("candidate", "baseline", "baseline is", "decision", "because", headings=2, wrapped=("because",))
        for past in decisions[:SHOWN]:
            rows.add_row(past["candidate"], past["baseline"], _relation(past), _conclusion(past), past["because"])
        out.print(rows)
    if (more := len(decisions) - SHOWN) > 0:
        counts = Counter("refused" if past["is_refused"] else past["conclusion"] for past in decisions)
        total = ", ".join(f"{count} {conclusion}" for conclusion, count in counts.most_common())
        out.print(f"  and {more} more; all {len(decisions)}: {total}")
    for sentence in backtest["sentences"]:
        out.print(Text(sentence))


def _conclusion(past: Mapping[str, Any]) -> Text:
    if past["is_refused"]:
        return Text("refused", style="yellow")
    return Text(past["conclusion"], style=DECISION_STYLES[past["conclusion"]])


def _relation(past: Mapping[str, Any]) -> str:
    if past["relation"] == "halves":
        return "its other half"
    relation = "approved then" if past["relation"] == "baseline" else "earlier"
    return f"{relation}, same target" if past["is_same_target"] else relation
