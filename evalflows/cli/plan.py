"""Estimate what a run costs, and how many examples its gates need."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalflows.analysis.figures import figure, given_figure
from evalflows.cli.late_commands import BATCHED, CHANGES, FORMAT, IN_BATCHES, print_json, with_one_line_errors
from evalflows.cli.output import Table, Text, console, echo, table
from evalflows.cli.running import find_modules_here
from evalflows.reports.documents import PlanDocument, PlannedCallsDocument, plain
from evalflows.specs import hints
from evalflows.store.kept_checks import keep_report
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.analysis.plan import Plan
    from evalflows.specs.experiment import ExperimentSpec

_PURPOSES = {"difference": "", "non_inferiority": "non-inferiority ", "superiority": "superiority "}


@click.command()
@click.argument("spec", metavar="SPEC|EXPERIMENT")
@CHANGES
@IN_BATCHES
@click.option("--effect", type=float, help="Difference to detect, such as 0.03.")
@click.option("--metric", "metrics", multiple=True, help="Plan for this metric only. Repeatable.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Probability of detecting it.")
@click.option("--all", "is_whole", is_flag=True, help="Print the assumptions too.")
@FORMAT
@with_one_line_errors
def plan(
    spec: str,
    changes: tuple[str, ...],
    in_batches: bool,
    effect: float | None,
    metrics: tuple[str, ...],
    power: float,
    is_whole: bool,
    form: str,
) -> None:
    """Estimate the cost of running a SPEC file, or a stored EXPERIMENT again, and the examples needed.

    Estimates use the calls and scores in the store. No model is called, and only the plan is stored.
    """
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from evalflows.api.planning import plan as make_plan

    find_modules_here()
    changes = (*changes, *(BATCHED if in_batches else ()))
    document = plan_document(make_plan(_spec_of(spec, changes), effect, metrics=metrics, power=power))
    identity = keep_report(Store(), "plan", document["name"], document, "\n".join(document["sentences"]))
    if form == "json":
        print_json({"plan_id": identity, **document})
        return
    print_plan(document, is_whole=is_whole)
    echo(f"\nkept: {hints.show(identity)}")


def _spec_of(reference: str, changes: Sequence[str]) -> "ExperimentSpec":
    """Return the spec in a file, or that of a stored experiment if no such file exists but such an experiment does."""
    from evalflows.specs.experiment import change_experiment, load_experiment
    from evalflows.store.row_specs import experiment_spec

    if not Path(reference).exists() and not reference.endswith((".yaml", ".yml")):
        store = existing_store()
        (row,) = store.read("experiments", find_experiments(store, reference)[0])
        return change_experiment(experiment_spec(row), changes)
    return load_experiment(reference, changes)


def print_plan(plan: PlanDocument, *, is_whole: bool) -> None:
    """Print a summary in sentences, the calls and the sample sizes; with `is_whole` the assumptions too. `plan` is the
    document of `--format json`."""
    out = console()
    for sentence, is_detail in zip(plan["sentences"], plan["is_detail"], strict=True):
        if is_whole or not is_detail:
            out.print(Text(sentence, "" if is_detail else "bold"))
    if plan["calls"]:
        out.print()
        out.print(calls_table(plan["calls"]))
    if any(call["ways"]["direct"] for call in plan["calls"]):
        out.print()
        out.print(ways_table(plan["calls"]))
    if any(metric["sample_sizes"] for metric in plan["metrics"]):
        out.print()
        out.print(_sizes(plan))
    if (details := sum(plan["is_detail"])) and not is_whole:
        out.print(f"not shown: {details} assumption{'s' * (details != 1)}: --all")


def calls_table(calls: Sequence[PlannedCallsDocument]) -> Table:
    """Return one row per caller of a model."""
    from evalflows.analysis.plan import count, money  # late: it loads the judges

    columns = ("calls of", "model", "calls", "in ledger", "tokens in", "out", "USD", "tokens from")
    out = _right(table(*columns, headings=2, wrapped=("tokens from",)), 2, 7)
    for call in calls:
        size = call["size"]
        tokens = [_whole(size["tokens_in"]), _whole(size["tokens_out"])]
        number = ("≤ " if call["at_most"] and call["calls"] else "") + count(call["calls"])
        cells = [call["caller"], call["model"] or "", number, _some(call["in_ledger"]), *tokens, money(call["usd"])]
        out.add_row(*cells, "; ".join(text for text in (size["basis"], call["note"]) if text))
    return out


def ways_table(calls: Sequence[PlannedCallsDocument]) -> Table:
    """Return one row per caller whose calls cost something: their cost as planned, and in other ways."""
    from evalflows.analysis.plan import money

    columns = {"direct": "direct", "ledger": "ledger", "cache": "prefixes", "batch": "batch"}
    out = _right(table("USD", "planned", *columns), 1, 2 + len(columns))
    for call in calls:
        ways: Mapping[str, float | None] = call["ways"]  # type: ignore[assignment]
        if ways["direct"]:
            others = ("" if ways[way] is None else money(ways[way]) for way in columns.values())
            out.add_row(call["caller"], money(call["usd"]), *others)
    return out


def _sizes(plan: PlanDocument) -> Table:
    from evalflows.analysis.plan import count, money

    columns = ("metric", "to detect", "repetitions", "examples", "clusters", "calls", "USD", "")
    clustered = plan["design"]["n_clusters"] is not None
    out = _right(
        table(*(name for name in columns if clustered or name != "clusters"), headings=2), 2, 7 if clustered else 6
    )
    for metric in plan["metrics"]:
        for sizes in metric["sample_sizes"]:
            effect, designs = sizes["effect"], sizes["designs"]
            size = given_figure(effect["declared"], metric["metric"])
            if not effect["declared"]:  # of a superiority margin
                size = f"by {figure(effect['size'], metric['metric'])}"
            what = f"{_PURPOSES[effect['purpose']]}{size}"
            for design in designs:
                clusters = [_some(design["clusters"])] if clustered else []
                numbers = [str(design["repetitions"]), count(design["examples"]), *clusters]
                best = "cheapest" if design["is_cheapest"] and len(designs) > 1 else ""
                calls = design["calls"] if design["calls"] or design["usd"] is not None else None  # none is known
                out.add_row(metric["metric"], what, *numbers, count(calls), money(design["usd"]), best)
    return out


def _right(table: Table, first: int, last: int) -> Table:
    """Right-align the columns from `first` up to `last`."""
    for column in table.columns[first:last]:
        column.justify = "right"
    return table


def _whole(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _some(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def plan_document(plan: "Plan") -> PlanDocument:
    """Return all figures as values of JSON; of the spec only its name."""
    from evalflows.analysis.plan import Detail, sentences_of

    sentences = sentences_of(plan)
    content: dict[str, Any] = {"name": plan.spec.name, **asdict(plan), "sentences": sentences}
    content["is_detail"] = [isinstance(sentence, Detail) for sentence in sentences]
    del content["spec"]
    content["calls"] = [{**asdict(call), "usd": call.usd, "ways": call.ways} for call in plan.calls]
    return plain(content)  # type: ignore[no-any-return]
