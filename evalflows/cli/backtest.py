"""Try gates on all past pairs of experiments."""

from collections.abc import Sequence

import click
from rich.console import RenderableType

from evalflows.cli.late_commands import CHANGES, FORMAT, VERBOSE_RUN, one_line_errors, print_json
from evalflows.cli.output import DECISION_STYLES, Console, Text, console, echo, table
from evalflows.cli.sections import IN_BRIEF, Section, lines_section, print_sections
from evalflows.reports.documents import BacktestDocument, PastDecisionDocument, plain
from evalflows.specs import hints
from evalflows.store.kept_checks import keep_report
from evalflows.store.store import Store


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
@click.option("--all", "is_whole", is_flag=True, help="Print all pairs, with the reason for each decision.")
@FORMAT
@CHANGES
@VERBOSE_RUN
def backtest(
    spec: str, name: str | None, is_whole: bool, form: str, changes: tuple[str, ...], verbose: bool, **settings: int
) -> None:
    """Backtest the gates of a SPEC file on all past pairs of experiments.

    Pairs of the same target are included. The result: how often the gates would have blocked a release, their
    false-alarm rate, and which losses they would have detected. Nothing is run or called, and
    nothing but the backtest is stored.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        experiment = load_experiment(spec, changes)
        from evalflows.api.planning import backtest_gate  # late: a mistake in the file is found before

        documents = []
        for result in backtest_gate(experiment, name, **settings):
            document = plain(result.as_dict())
            identity = keep_report(Store(), "backtest", result.gate, document, "\n".join(document["sentences"]))
            if form == "json":
                documents.append({"backtest_id": identity, **document})
            else:
                print_backtest(console(), document, is_whole=is_whole)
                echo(f"kept: {hints.show(identity)}")
        if form == "json":
            print_json(documents)


def print_backtest(out: Console, backtest: BacktestDocument, *, is_whole: bool) -> None:
    """Print a summary in sentences and the newest pairs; with `is_whole` all pairs, and the rules that decided.

    `backtest` is the document of `--format json`.
    """
    columns = ["candidate", "baseline", "baseline is", "decision", *(["because"] if is_whole else [])]

    def draw(decisions: Sequence[PastDecisionDocument]) -> RenderableType:
        rows = table(*columns, headings=2, wrapped=("because",))
        for past in decisions:
            cells: list[str | Text] = [past["candidate"], past["baseline"], _relation(past), _conclusion(past)]
            rows.add_row(*cells, *([past["because"]] if is_whole else []))
        return rows

    decisions, title = backtest["decisions"], f"gate {backtest['gate']}, backtested on {backtest['experiments']}"
    least = None if is_whole else min(3, len(decisions))
    sections = [
        lines_section([Text(f"{title} experiments", style="bold"), *map(Text, backtest["sentences"])]),
        Section(items=decisions, draw=draw, what="pair", least=least, is_apart=True),
    ]
    print_sections(out, sections, IN_BRIEF, "--all")


def _conclusion(past: PastDecisionDocument) -> Text:
    if past["is_refused"]:
        return Text("refused", style="yellow")
    return Text(past["conclusion"], style=DECISION_STYLES[past["conclusion"]])


def _relation(past: PastDecisionDocument) -> str:
    if past["relation"] == "halves":
        return "its other half"
    relation = "approved then" if past["relation"] == "baseline" else "earlier"
    return f"{relation}, same target" if past["is_same_target"] else relation
