"""Plan a run: its cost, and the number of examples needed to detect an effect."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.documents import FORMAT, print_json
from evalflows.cli.errors import one_line_errors
from evalflows.cli.running import find_modules_here
from evalflows.cli.show import CHANGES, VERBOSE
from evalflows.cli.tables import Table, table
from evalflows.cli.terminal import Text, console, echo
from evalflows.reports.document import plain
from evalflows.reports.figures import figure
from evalflows.store.parquet import Store
from evalflows.store.queries.kept_reports import keep_report

if TYPE_CHECKING:
    from evalflows.flows.api.planning import Plan
    from evalflows.specs.experiment import ExperimentSpec


@click.command()
@click.argument("spec")
@CHANGES
@click.option("--effect", type=float, help="Difference to detect, such as 0.03.")
@click.option("--metric", "metrics", multiple=True, help="Plan for this metric only. Repeatable.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Probability of detecting it.")
@FORMAT
@VERBOSE
def plan(
    spec: str,
    changes: tuple[str, ...],
    effect: float | None,
    metrics: tuple[str, ...],
    power: float,
    form: str,
    verbose: bool,
) -> None:
    """Estimate what a run of a SPEC file would cost, and how many examples it needs.

    Estimates use the calls and scores in the store. Nothing is called, and nothing but the plan is stored.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        document = _document(_planned(load_experiment(spec, changes), effect, metrics, power))
        identity = keep_report(Store(), "plan", document["name"], document, "\n".join(document["sentences"]))
        if form == "json":
            print_json({"plan_id": identity, **document})
            return
        print_plan(document)
        echo(f"\nkept: evalflows show {identity}")


def _planned(spec: "ExperimentSpec", effect: float | None, metrics: tuple[str, ...], power: float) -> "Plan":
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from evalflows.flows.api.planning import plan as make_plan

    find_modules_here()
    return make_plan(spec, effect, metrics=metrics, power=power)


def print_plan(plan: Mapping[str, Any]) -> None:
    """Print the calls, the sample sizes, and a summary in sentences; `plan` is the document of `--format json`."""
    out = console()
    if plan["calls"]:
        out.print(_calls(plan["calls"]))
        out.print()
    if any(metric["sample_sizes"] for metric in plan["metrics"]):
        out.print(_sizes(plan))
        out.print()
    for sentence, is_detail in zip(plan["sentences"], plan["is_detail"], strict=True):
        out.print(Text(sentence, style="" if is_detail else "bold"))


def _calls(calls: Sequence[Mapping[str, Any]]) -> Table:
    from evalflows.analysis.planning.sentences import count, money  # late: it loads the judges

    columns = ("calls of", "model", "calls", "in ledger", "tokens in", "out", "USD", "tokens from")
    out = _right(table(*columns, headings=2, wrapped=("tokens from",)), 2, 7)
    for call in calls:
        size = call["size"]
        tokens = [_whole(size["tokens_in"]), _whole(size["tokens_out"])]
        number = ("≤ " if call["at_most"] and call["calls"] else "") + count(call["calls"])
        cells = [call["caller"], call["model"] or "", number, _some(call["in_ledger"]), *tokens, money(call["usd"])]
        out.add_row(*cells, "; ".join(text for text in (size["basis"], call["note"]) if text))
    return out


def _sizes(plan: Mapping[str, Any]) -> Table:
    from evalflows.analysis.planning.sentences import count, money

    columns = ("metric", "to detect", "repetitions", "examples", "clusters", "calls", "USD", "")
    clustered = plan["design"]["n_clusters"] is not None
    out = _right(
        table(*(name for name in columns if clustered or name != "clusters"), headings=2), 2, 7 if clustered else 6
    )
    for metric in plan["metrics"]:
        for sizes in metric["sample_sizes"]:
            effect, designs = sizes["effect"], sizes["designs"]
            what = f"{_PURPOSES[effect['purpose']]}{figure(effect['declared'], metric['metric'])}"
            for design in designs:
                clusters = [_some(design["clusters"])] if clustered else []
                numbers = [str(design["repetitions"]), count(design["examples"]), *clusters]
                best = "cheapest" if design["is_cheapest"] and len(designs) > 1 else ""
                out.add_row(metric["metric"], what, *numbers, count(design["calls"]), money(design["usd"]), best)
    return out


_PURPOSES = {"difference": "", "non_inferiority": "non-inferiority ", "superiority": "superiority "}


def _right(table: Table, first: int, last: int) -> Table:
    """Right-align the columns from `first` up to `last`."""
    for column in table.columns[first:last]:
        column.justify = "right"
    return table


def _whole(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _some(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _document(plan: "Plan") -> dict[str, Any]:
    """All figures as values of JSON; of the spec only its name."""
    from evalflows.flows.api.planning import Detail, sentences_of

    sentences = sentences_of(plan)
    content: dict[str, Any] = {"name": plan.spec.name, **asdict(plan), "sentences": sentences}
    content["is_detail"] = [isinstance(sentence, Detail) for sentence in sentences]
    del content["spec"]
    content["calls"] = [{**asdict(call), "usd": call.usd} for call in plan.calls]
    return plain(content)  # type: ignore[no-any-return]
