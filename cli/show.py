"""Read the store: ls, sql, and the tables of experiments. Nothing here loads Prefect."""

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

import click
from rich.table import Table

from evalflows.cli.errors import one_line_errors
from evalflows.cli.terminal import Text, console, echo
from evalflows.reports.results import Result, judges_in_sentences, results_of, sentences
from evalflows.specs.safe_text import one_line
from evalflows.store.catalog import ask
from evalflows.store.existing import is_store, no_experiments
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups
from evalflows.store.records import controls_batch

VERBOSE = click.option("--verbose", is_flag=True, help="Show the traceback of an error.")
VERBOSE_RUN = click.option("--verbose", is_flag=True, help="Show Prefect's log and the traceback of an error.")
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
        out = table("experiment", "id", "state", "answered", "failed", "dataset", "started (UTC)")
        for name, identity, state, answered, planned, failed, dataset, started in rows:
            out.add_row(
                name, identity, state, f"{answered}/{planned}", str(failed), dataset or "", f"{started:%Y-%m-%d %H:%M}"
            )
        console().print(out)
        if compared:
            console().print(_listed(compared))


def _listed(rows: Sequence[Sequence[Any]]) -> Table:
    out = table("comparison", "id", "state", "judged", "experiments", "started (UTC)")
    for name, identity, state, judged, planned, experiments, started in rows:
        out.add_row(name, identity, state, f"{judged}/{planned}", ", ".join(experiments), f"{started:%Y-%m-%d %H:%M}")
    return out


def print_experiments(identities: Sequence[str], made: Mapping[str | None, int] | None = None) -> None:
    """Print the results of experiments: each metric with its interval, its difference from the baseline and verdict,
    missing scores, cost and errors, and the number of calls `made` for them in this run."""
    store, arguments = Store(), [list(identities)]
    results = results_of(store, identities)
    overviews, errors, cuts, unpriced, judges = ask(
        store,
        *((query, arguments) for query in (_OVERVIEW, _ERRORS, _CUTS, _UNPRICED)),
        (_JUDGES, [[controls_batch(group) for group in run_groups(store, identities)]]),
    )
    out = console()
    out.print(_metrics(results))
    for sentence in sentences(results):
        out.print(Text(sentence, style="bold"))
    mentioned = judges_in_sentences(results)
    for judge, passed, message in judges:
        if judge not in mentioned:
            out.print(Text(f"{judge}: {message}", style="" if passed else "yellow"))
    for overview in overviews:
        out.print(_in_words(*overview))
    for number, (name, what, error, count, trace) in enumerate(errors):
        out.print(Text(f"  {count} x {name}, {what}: {error}", style="yellow"))
        if trace and number < TRACES:
            out.print(Text(indent(trace, "    "), lines=True))
    for name, calls, budget in unpriced:
        unknown = f"  {name}: {calls} calls of unknown price do not count toward its budget of {budget:g} USD"
        out.print(Text(unknown, style="bold red"))
    for connection, low, high, count in cuts:
        out.print(f"  {connection}: {low} to {high} calls at once, reduced {count} times because calls were refused")
    if made is not None:
        out.print(f"{sum(made.get(identity, 0) for identity in identities)} model calls made in this run")


def _metrics(results: Sequence[Result]) -> Table:
    """One row per metric and system; columns of differences only if there is a baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", "interval", "scored", "missing", "n/a")
    out = table(*columns, *(("difference", *P_VERDICT) if compared else ()))
    for result in results:
        if result.is_worth_showing:
            cells = [result.metric, result.target, result.mean_text, result.interval_text, result.scored_text]
            verdict = Text(result.verdict_text, style=STYLES.get(result.conclusion or "", ""))
            rest = (result.difference_text, result.p_text, result.p_adjusted_text, verdict) if compared else ()
            out.add_row(*cells, _loud(result.missing), str(result.not_applicable or ""), *rest)
    return out


TRACES = 3
"""Number of errors that are shown with the frames of the user's code."""
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
select e.name, what, error, count(*) as n, min(error_trace) from (
    select experiment_id, 'target' as what, error, error_trace from outputs where status = 'failed'
    union all
    select experiment_id, evaluator as what, error, error_trace from scores
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


_NUMBERS = {*("mean", "scored", "missing", "n/a", "answered", "failed", "examples", "versions"), *P_VERDICT[:2]}


def table(*columns: str) -> Table:
    """Return an empty table without lines; numeric columns are right-aligned."""
    empty = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        number = column in _NUMBERS
        empty.add_column(column, justify="right" if number else "left", overflow="fold")
    return empty
