"""Comparing experiments, and showing how a comparison came out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import CHANGES, P_VERDICT, STYLES, VERBOSE_RUN, console, table
from specs.errors import InputError
from store.comparison_report import ComparisonReport, Overview, comparison_report
from store.parquet import Store

if TYPE_CHECKING:
    from specs.comparison import ComparisonSpec

BUILT_IN = "pairwise_preference"
"""The judge where none is named, and the only one that takes criteria."""


@click.command()
@click.argument("experiments", nargs=-1, required=True)
@click.option("--judge", "judges", multiple=True, help="Who compares: pairwise_preference, or module:name. Repeatable.")
@click.option("--connection", help="The connection that the judges ask.")
@click.option("--model", help="The model that the judges ask.")
@click.option("--criteria", multiple=True, help="What pairwise_preference judges by, such as helpfulness. Repeatable.")
@click.option("--both-orders", is_flag=True, help="Ask twice, with each answer first. Costs twice as much.")
@click.option("--baseline", help="The experiment that the others are measured by; the first where left out.")
@click.option("--by", multiple=True, help="Win rates for each value of a field, such as metadata.topic. Repeatable.")
@click.option("--name", help="What the comparison is called.")
@click.option("--run-key", help="Comparisons with the same key are one: with more experiments, it goes on with theirs.")
@CHANGES
@click.option("--fresh", is_flag=True, help="Pay for every model call anew.")
@VERBOSE_RUN
def compare(experiments: tuple[str, ...], changes: tuple[str, ...], fresh: bool, verbose: bool, **given: Any) -> None:
    """Say which answers are better, of two or more EXPERIMENTS that exist (names, ids, run groups), pair by pair.

    Or of those that a file describes: `evalflows compare comparison.yaml`.
    """
    with one_line_errors(verbose):
        settings = [*changes, *(["fresh=true"] if fresh else [])]
        run_comparison(_spec(experiments, given, settings), None, verbose)


def _spec(experiments: Sequence[str], given: dict[str, Any], changes: Sequence[str]) -> "ComparisonSpec":
    from specs.comparison import ComparisonSpec, load_comparison
    from specs.spec_file import make_spec

    if len(experiments) == 1 and experiments[0].endswith((".yaml", ".yml")):
        if named := next((name for name, value in given.items() if value), None):
            raise InputError(f"--{named.replace('_', '-')}: the file says it; --set changes what it says")
        return load_comparison(experiments[0], changes)
    uses = given["judges"] or [BUILT_IN]
    if given["criteria"] and BUILT_IN not in uses:
        raise InputError(f"--criteria: got judges that take none ({', '.join(uses)}), wanted --judge {BUILT_IN}")
    judges = [_judge(use, given) for use in uses]
    fields = {
        "experiments": list(experiments),
        "evaluators": judges,
        "both_orders": given["both_orders"],
        "by": list(given["by"]),
        **{name: given[name] for name in ("name", "baseline", "run_key") if given[name]},
    }
    return make_spec(ComparisonSpec, fields, changes, "compare")


def _judge(use: str, given: dict[str, Any]) -> dict[str, Any]:
    is_ours = use == BUILT_IN and given["criteria"]
    args = {"args": {"criteria": list(given["criteria"])}} if is_ours else {}
    return {"use": use, "connection": given["connection"], "model": given["model"], **args}


def run_comparison(spec: "ComparisonSpec", resume: str | None, verbose: bool) -> None:
    """Run it, and print how it came out."""
    from cli.running import prepared

    with prepared(verbose, spec.name or "the comparison") as watch:
        from flows import compare as run_flow

        done = run_flow(spec, resume, watch)
    print_comparison(done)


def print_comparison(comparison_id: str) -> None:
    """Print who wins, who stands where, what the judges go by, and that in words."""
    report = comparison_report(Store(), comparison_id)
    out = console()
    out.print(_rates(report))
    if report.overview.n_experiments > 2:
        out.print(_standings(report))
    for sentence in report.sentences:
        out.print(Text(sentence, style="bold"))
    for habit in report.known_habits:
        out.print(Text(habit.text, style="yellow" if habit.passed is False else ""))
    out.print(_in_words(report.overview))
    for evaluator, error, count in report.errors:
        out.print(Text(f"  {count} x {evaluator}: {error}", style="yellow"))


def _rates(report: ComparisonReport) -> Table:
    out = table(
        *("metric", "candidate", "baseline", "", "win rate"), *("wins", "ties", "losses", "missing"), *P_VERDICT
    )
    for one in report.win_rates:
        verdict = Text(one.verdict_text, style=STYLES.get(one.conclusion, ""))
        what = "" if one.what == "all" else one.what
        cells = (one.metric, one.candidate, one.baseline, what, one.rate_text, *one.counts)
        out.add_row(*cells, one.p_text, one.p_adjusted_text, verdict)
    return out


def _standings(report: ComparisonReport) -> Table:
    out = table("metric", "rank", "experiment", "rating", "win rate over all", "wins", "ties", "losses")
    for one in report.standings:
        counts = (str(count) for count in (one.wins, one.ties, one.losses))
        out.add_row(one.metric, str(one.rank or "-"), one.experiment, one.rating_text, one.rate_text, *counts)
    return out


def _in_words(one: Overview) -> Text:
    text = Text(f"{one.name} ({one.comparison_id}) ")
    text.append(one.state, style="green" if one.state == "completed" else "bold red")
    text.append(f": {one.n_experiments} experiments, {one.n_shared} shared examples, {_order(one)}; ")
    text.append(f"{one.judged} of {one.planned} judged")
    if one.calls is not None:
        cost = "cost unknown" if one.cost_usd is None else f"{one.cost_usd:.4f} USD"
        text.append(f"; {one.calls} model calls, {one.calls_cached} from the ledger, {cost}")
    return text.append(f"; {one.reason}") if one.reason else text


def _order(one: Overview) -> str:
    if one.both_orders:
        return "each pair in both orders"
    return "the order drawn for each pair" if one.randomize_order else "one order"
