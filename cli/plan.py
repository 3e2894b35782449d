"""What a run would cost, and how many examples show what is wanted."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import CHANGES, VERBOSE, console, table
from store.results import figure

if TYPE_CHECKING:
    from flows.planning import Plan
    from specs.experiment import ExperimentSpec


@click.command()
@click.argument("spec")
@CHANGES
@click.option("--effect", type=float, help="The difference that is to be seen, such as 0.03.")
@click.option("--metric", "metrics", multiple=True, help="Plan for this metric only. Repeatable.")
@click.option("--power", type=float, default=0.8, show_default=True, help="How often it is to be seen.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
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
    """Say what a run of a SPEC file would cost, and how many examples it takes to see an effect.

    It is reckoned from the calls and the scores in the store. Nothing is called, and nothing is kept.
    """
    from specs.experiment import load_experiment

    with one_line_errors(verbose):
        found = _planned(load_experiment(spec, changes), effect, metrics, power)
        print_plan(found) if form == "table" else click.echo(_as_json(found))


def _planned(spec: "ExperimentSpec", effect: float | None, metrics: tuple[str, ...], power: float) -> "Plan":
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from flows.planning import plan as make_plan

    sys.path.append(str(Path.cwd()))  # a module beside the spec is found, and hides none of ours
    return make_plan(spec, effect, metrics=metrics, power=power)


def print_plan(found: "Plan") -> None:
    """Print the calls, the sizes, and both in words."""
    from flows.planning import sentences_of

    out = console()
    if found.calls:
        out.print(_calls(found))
        out.print()
    if any(one.wanted for one in found.metrics):
        out.print(_sizes(found))
        out.print()
    for sentence in sentences_of(found):
        out.print(Text(sentence, style="" if sentence.startswith("  ") else "bold"))


def _calls(found: "Plan") -> Table:
    from flows.planning import count, money

    out = _right(table("calls of", "model", "calls", "in ledger", "tokens in", "out", "USD", "tokens from"), 2, 7)
    for one in found.calls:
        of_call = [_whole(one.size.tokens_in), _whole(one.size.tokens_out)]
        asked = ("≤ " if one.at_most and one.calls else "") + count(one.calls)
        cells = [one.who, one.model or "", asked, _some(one.in_ledger), *of_call, money(one.usd)]
        out.add_row(*cells, "; ".join(text for text in (one.size.basis, one.note) if text))
    return out


def _sizes(found: "Plan") -> Table:
    from flows.planning import count, money

    columns = ("metric", "to see", "repetitions", "examples", "clusters", "calls", "USD", "")
    clustered = found.present.n_clusters is not None
    out = _right(table(*(name for name in columns if clustered or name != "clusters")), 2, 7 if clustered else 6)
    for one in found.metrics:
        for sizes in one.wanted:
            what = f"{_PURPOSES[sizes.wanted.purpose]}{figure(sizes.wanted.said, one.metric)}"
            for way in sizes.ways:
                numbers = [str(way.repetitions), count(way.examples), *([_some(way.clusters)] if clustered else [])]
                best = "cheapest" if way.is_cheapest and len(sizes.ways) > 1 else ""
                out.add_row(one.metric, what, *numbers, count(way.calls), money(way.usd), best)
    return out


_PURPOSES = {"difference": "", "guard": "guard ", "goal": "goal "}


def _right(made: Table, first: int, last: int) -> Table:
    """The columns from `first` up to `last` stand to the right."""
    for column in made.columns[first:last]:
        column.justify = "right"
    return made


def _whole(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _some(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _as_json(found: "Plan") -> str:
    """All figures; of the spec its name alone."""
    from flows.planning import sentences_of

    told: dict[str, Any] = {"name": found.spec.name, **asdict(found), "sentences": sentences_of(found)}
    del told["spec"]
    told["calls"] = [{**asdict(one), "usd": one.usd} for one in found.calls]
    return json.dumps(told, ensure_ascii=False, indent=2)
