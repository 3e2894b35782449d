"""Read the store: ls, sql, and the tables of experiments. Nothing here loads Prefect."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from textwrap import indent
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
from evalflows.store.queries.states import INTERRUPTED, spooled_if_running
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
FRESH = click.option(
    "--fresh", is_flag=True, help="Start anew whatever the run_key, reuse no cached model call, and pay for every call."
)
STARTED_ANEW = ("use_cache=false", "run_key=null")
"""The changes of a spec that `--fresh` stands for."""


@click.command()
@click.option("--name", help="Only names that begin with this.")
@click.option("--dataset", help="Only experiments on this dataset.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]), help="Only those started since (UTC).")
@VERBOSE
def ls(verbose: bool, **wanted: str | datetime | None) -> None:
    """List experiments and comparisons, newest first."""
    with one_line_errors(verbose):
        if not is_store(layout := Layout.at()):
            echo(one_line(no_experiments(layout)))
            return
        store = Store(layout.root)
        values = [wanted[name] for name in ("name", "tag", "since", "dataset")]
        rows, compared = ask(store, (_EXPERIMENTS, values), (_COMPARISONS, values))
        if not rows and not compared:
            is_filtered = any(value is not None for value in values)
            echo("no experiments of that kind" if is_filtered else one_line(no_experiments(layout)))
            return
        if rows:
            console().print(_listed(store, rows))
        if compared:
            console().print(_listed_comparisons(store, compared))


def _listed(store: Store, rows: Sequence[Sequence[Any]]) -> Table:
    out = table("experiment", "id", "state", "answered", "failed", "dataset", "started (UTC)", headings=2)
    for name, identity, state, answered, planned, failed, dataset, started in rows:
        more = spooled_if_running(store, state, identity, "outputs")
        out.add_row(
            name,
            identity,
            state,
            f"{answered + more}/{planned}",
            str(failed),
            dataset or "",
            f"{started:%Y-%m-%d %H:%M}",
        )
    return out


def _listed_comparisons(store: Store, rows: Sequence[Sequence[Any]]) -> Table:
    columns = ("comparison", "id", "state", "judged", "started (UTC)", "experiments")
    out = table(*columns, headings=2, wrapped=("experiments",))
    for name, identity, state, judged, planned, experiments, started in rows:
        more = spooled_if_running(store, state, identity, "comparisons")
        out.add_row(
            name, identity, state, f"{judged + more}/{planned}", f"{started:%Y-%m-%d %H:%M}", ", ".join(experiments)
        )
    return out


def print_experiments(
    results: Sequence[Result], *, wide: bool = False, experiments: Sequence[str] | None = None
) -> None:
    """Print results: each metric with its interval, its difference from the baseline and verdict, missing scores, cost
    and errors; with `wide` also counts and p-values. `experiments` are ids: some may have no result."""
    store = Store()
    identities = list(experiments or dict.fromkeys(result.experiment_id for result in results))
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
        out.print(_in_words(store, *overview))
    for number, (name, what, error, count, trace) in enumerate(errors):
        out.print(Text(f"  {count} x {name}, {what}: {error}", style="yellow"))
        if trace and number < TRACES:
            out.print(Text(indent(trace, "    "), lines=True))
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
    """Print the number of calls recorded for experiments in this run."""
    query = "select bool_or(unrecorded > 0) from experiment_overview where list_contains(?, experiment_id)"
    (((has_unrecorded,),),) = ask(Store(), (query, [list(identities)]))
    calls = "recorded model calls" if has_unrecorded else "model calls"
    console().print(f"{sum(made.get(identity, 0) for identity in identities)} {calls} made in this run")


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

TRACES = 3
"""Number of errors that are shown with the frames of the user's code."""
P_VERDICT = ("p", "p adj.", "verdict")
STYLES = {"better": "bold green", "worse": "bold red", "not_enough_evidence": "yellow"}


_EXPERIMENTS = """
select name, experiment_id, state, answered, planned, failed, dataset_name, started_at
from experiment_overview
where ($1 is null or starts_with(name, $1)) and ($2 is null or list_contains(tags, $2))
  and ($3 is null or started_at >= $3::timestamp at time zone 'UTC') and ($4 is null or dataset_name = $4)
order by started_at desc, target
"""

_COMPARISONS = """
select name, comparison_id, state, judged + decided_without_judge, planned, experiments, started_at
from comparison_overview
where ($1 is null or starts_with(name, $1)) and ($2 is null or list_contains(tags, $2))
  and ($3 is null or started_at >= $3::timestamp at time zone 'UTC') and $4 is null
order by started_at desc
"""

_OVERVIEW = """
select name, experiment_id, state, reason, answered, failed, planned, calls, calls_cached, cost_usd,
       mean_latency_s, recorded_calls, unrecorded > 0 as has_unrecorded
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
    store: Store,
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
    recorded: int,
    has_unrecorded: bool,
) -> Text:
    more = spooled_if_running(store, state, identity, "outputs")
    text = Text(f"{name} ({identity}) ").append(state, style="green" if state == "completed" else "bold red")
    text.append(f": {answered + more} of {planned} answered")
    if failed:
        text.append(f", {failed} failed", style="bold red")
    if latency is not None:
        text.append(f", {latency:.2f} s each")
    if calls is not None:
        text.append(
            f"; {calls} model calls, {cached} from the ledger, {'cost unknown' if cost is None else f'{cost:.4f} USD'}"
        )
    if has_unrecorded:
        text.append(
            f"; the target's own model calls were not recorded, so their cost is unknown ({recorded} others were)"
        )
    if state == INTERRUPTED:
        text.append(f"; `evalflows resume {identity}` continues")
    return text.append(f"; {reason}") if reason else text


def _loud(count: int) -> Text:
    return Text(str(count), style="bold red" if count else "")
