"""Read the store: ls, sql, and the tables of experiments. Nothing here loads Prefect."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.tables import Table, table
from evalflows.cli.terminal import Console, Text, console, echo
from evalflows.reports.decisions import Decision
from evalflows.reports.results import Result, judges_in_sentences, sentences
from evalflows.reports.worst_examples import worst_of
from evalflows.specs.safe_text import one_line
from evalflows.store.catalog import ask
from evalflows.store.existing import is_store, no_experiments
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups
from evalflows.store.records import controls_batch

VERBOSE = click.option("--verbose", is_flag=True, help="Show the traceback of an error.")
VERBOSE_RUN = click.option("--verbose", is_flag=True, help="Show Prefect's log and the traceback of an error.")
WIDE = click.option("--wide", is_flag=True, help="Show all columns: counts, p-values and adjusted p-values.")
CHANGES = click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a field of the spec, such as repetitions=3 or budget_usd=10. Repeatable.",
)


@click.command()
@VERBOSE
def ls(verbose: bool) -> None:
    """List experiments and comparisons, newest first."""
    with one_line_errors(verbose):
        layout = Layout.at()
        rows, compared = (
            ask(Store(layout.root), (_EXPERIMENTS, []), (_COMPARISONS, [])) if is_store(layout) else ([], [])
        )
        if not rows:
            echo(one_line(no_experiments(layout)))
            return
        out = table("experiment", "id", "state", "answered", "failed", "dataset", "started (UTC)", headings=2)
        for name, identity, state, answered, planned, failed, dataset, started in rows:
            out.add_row(
                name, identity, state, f"{answered}/{planned}", str(failed), dataset or "", f"{started:%Y-%m-%d %H:%M}"
            )
        console().print(out)
        if compared:
            console().print(_listed(compared))


def _listed(rows: Sequence[Sequence[Any]]) -> Table:
    columns = ("comparison", "id", "state", "judged", "started (UTC)", "experiments")
    out = table(*columns, headings=2, wrapped=("experiments",))
    for name, identity, state, judged, planned, experiments, started in rows:
        out.add_row(name, identity, state, f"{judged}/{planned}", f"{started:%Y-%m-%d %H:%M}", ", ".join(experiments))
    return out


def print_experiments(results: Sequence[Result], *, wide: bool = False) -> None:
    """Print results: each metric with its interval, its difference from the baseline and verdict, missing scores, cost
    and errors; with `wide` also counts and p-values."""
    store, identities = Store(), list(dict.fromkeys(result.experiment_id for result in results))
    arguments = [identities]
    overviews, errors, cuts, unpriced, judges = ask(
        store,
        *((query, arguments) for query in (_OVERVIEW, _ERRORS, _CUTS, _UNPRICED)),
        (_JUDGES, [[controls_batch(group) for group in run_groups(store, identities)]]),
    )
    out = console()
    out.print(_all_columns(results) if wide else _metrics(results))
    for sentence in sentences(results):
        out.print(Text(sentence, style="bold"))
    mentioned = judges_in_sentences(results)
    for judge, passed, message in judges:
        if judge not in mentioned:
            out.print(Text(f"{judge}: {message}", style="" if passed else "yellow"))
    for overview in overviews:
        out.print(_in_words(*overview))
    for name, what, error, count in errors:
        out.print(Text(f"  {count} x {name}, {what}: {error}", style="yellow"))
    for name, calls, budget in unpriced:
        unknown = f"  {name}: {calls} calls of unknown price do not count toward its budget of {budget:g} USD"
        out.print(Text(unknown, style="bold red"))
    for connection, low, high, count in cuts:
        out.print(f"  {connection}: {low} to {high} calls at once, reduced {count} times because calls were refused")


def print_worst(out: Console, results: Sequence[Result], decisions: Sequence[Decision] = ()) -> None:
    """Print the examples that got worse, and the command that lists all of them; nothing if none did."""
    if worst := worst_of(Store(), results, decisions):
        out.print()
        for examples in worst.examples:
            heading, *lines = examples.lines(min(out.width, MAX_WIDTH))
            out.print(Text(heading, style="bold"))
            for line in lines:
                out.print(Text(line))
        echo(one_line(f"all of them: {worst.command}"))


def print_next(out: Console, command: str) -> None:
    """Print the command to run next."""
    out.print()
    echo(one_line(f"next: {command}"))


def print_calls(identities: Sequence[str], made: Mapping[str | None, int]) -> None:
    """Print the number of calls made for experiments in this run."""
    console().print(f"{sum(made.get(identity, 0) for identity in identities)} model calls made in this run")


def _metrics(results: Sequence[Result]) -> Table:
    """One row per metric and system; columns of differences only if there is a baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", *(("difference", "verdict") if compared else ()))
    out = table(*columns, headings=2, wrapped=("mean",))
    out.columns[columns.index("mean")].justify = "left"  # aligned with the numbers by spaces before them
    shown = [result for result in results if result.is_worth_showing]
    width = max((len(result.mean_text) for result in shown if not result.shares), default=0)
    for result in shown:
        mean = f"{result.mean_text:>{width}} {result.interval_text}".rstrip()
        rest = (result.difference_text, _styled(result.verdict_cell, result)) if compared else ()
        out.add_row(result.metric, result.target, mean, *rest)
    return out


def _all_columns(results: Sequence[Result]) -> Table:
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", "interval", "scored", "missing", "n/a")
    out = table(*columns, *(("difference", *P_VERDICT) if compared else ()), headings=2, wrapped=("mean", "verdict"))
    for result in results:
        if result.is_worth_showing:
            cells = [result.metric, result.target, result.mean_text, result.interval_text, result.scored_text]
            verdict = _styled(result.verdict_text, result)
            rest = (result.difference_text, result.p_text, result.p_adjusted_text, verdict) if compared else ()
            out.add_row(*cells, _loud(result.missing), str(result.not_applicable or ""), *rest)
    return out


def _styled(verdict: str, result: Result) -> Text:
    return Text(verdict, style=STYLES.get(result.conclusion or "", ""))


MAX_WIDTH = 120
"""The width at which examples are wrapped in a wider terminal."""

P_VERDICT = ("p", "p adj.", "verdict")
STYLES = {"better": "bold green", "worse": "bold red", "not_enough_evidence": "yellow"}


_EXPERIMENTS = """
select name, experiment_id, state, answered, planned, failed, dataset_name, started_at
from experiment_overview order by started_at desc, target
"""

_COMPARISONS = """
select name, comparison_id, state, judged + decided_without_judge, planned, experiments, started_at
from comparison_overview order by started_at desc
"""

_OVERVIEW = """
select name, experiment_id, state, reason, answered, failed, planned, calls, calls_cached, cost_usd, mean_latency_s
from experiment_overview where list_contains($1, experiment_id) order by list_position($1, experiment_id)
"""

_CUTS = """
select connection, min(width), max(width), count(*) filter (reason in ('refused', 'refused_waiting')) as cuts
from (select distinct connection, process, changed_at, width, reason from limits where list_contains($1, experiment_id))
group by connection having cuts > 0 order by connection
"""

_UNPRICED = """
select e.name, count(*), any_value(e.budget_usd) from calls c join experiments e using (experiment_id)
where list_contains($1, experiment_id) and e.budget_usd is not null and c.cost_usd is null
group by e.name order by e.name
"""

_JUDGES = """
select subject_id, passed, message from checks
where list_contains($1, batch_id) and subject_kind = 'judge' order by subject_id
"""

_ERRORS = """
select e.name, what, error, count(*) as n from (
    select experiment_id, 'target' as what, error from outputs where status = 'failed'
    union all
    select experiment_id, evaluator as what, error from scores
    where status = 'failed' and coalesce(error_kind, '') <> 'no_output'
) f join experiments e using (experiment_id)
where list_contains($1, experiment_id)
group by all order by n desc, e.name, what, error limit 10
"""


def _in_words(
    name: str,
    identity: str,
    state: str,
    reason: str | None,
    answered: int,
    failed: int,
    planned: int,
    calls: int | None,
    cached: int | None,
    cost: float | None,
    latency: float | None,
) -> Text:
    text = Text(f"{name} ({identity}) ").append(state, style="green" if state == "completed" else "bold red")
    text.append(f": {answered} of {planned} answered")
    if failed:
        text.append(f", {failed} failed", style="bold red")
    if latency is not None:
        text.append(f", {latency:.2f} s each")
    if calls is not None:
        text.append(
            f"; {calls} model calls, {cached} from the ledger, {'cost unknown' if cost is None else f'{cost:.4f} USD'}"
        )
    return text.append(f"; {reason}") if reason else text


def _loud(count: int) -> Text:
    return Text(str(count), style="bold red" if count else "")
