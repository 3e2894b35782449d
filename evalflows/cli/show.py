"""The tables and sentences that are printed of experiments. Nothing here loads Prefect."""

from collections.abc import Sequence
from textwrap import indent

from evalflows.cli.output import Console, Table, Text, console, echo, table
from evalflows.dashboard.links import Links, NoLinks
from evalflows.prefect_server import dashboard_url
from evalflows.reports.pages_as_text import ExperimentOverview, ExperimentsReport
from evalflows.reports.results import Result
from evalflows.reports.worst import Worst, WorstExamples
from evalflows.specs import hints
from evalflows.specs.errors import one_line
from evalflows.specs.hints import Hint
from evalflows.store.layout import Layout


def print_experiments(report: ExperimentsReport, *, wide: bool = False) -> None:
    """Print results: each metric with its interval, its difference from the baseline and verdict, missing scores, cost
    and errors; with `wide` also counts and p-values."""
    out = console()
    out.print(all_columns(report.results) if wide else _metrics(report.results))
    for sentence in report.sentences:
        out.print(Text(sentence, style="bold"))
    for mismatch in report.types_apart:
        out.print(Text(mismatch.text, style="yellow"))
    for check in report.unmentioned_checks:
        out.print(Text(f"{check.judge}: {check.message}", style="" if check.passed else "yellow"))
    for warning in report.judge_warnings:
        out.print(Text(warning, style="yellow"))
    for overview in report.experiments:
        out.print(overview_line(overview))
    for number, failure in enumerate(report.failures):
        example = f" (example {failure.example_id})" if failure.example_id else ""
        text = f"  {failure.count} x {failure.experiment}, {failure.source}: {failure.error}{example}"
        out.print(Text(text, style="yellow"))
        if failure.trace and number < TRACES:
            out.print(Text(indent(failure.trace, "    "), lines=True))
    for calls in report.unpriced:
        for what, style in ((calls.estimated_text, "yellow"), (calls.uncounted_text, "bold red")):
            if what:
                out.print(Text(f"  {calls.experiment}: {what}", style=style))
    for limit in report.reduced_limits:
        reduced = f"reduced {limit.times} times because calls were refused"
        out.print(f"  {limit.connection}: {limit.lowest} to {limit.highest} calls at once, {reduced}")


def print_worst(out: Console, worst: Worst | None) -> None:
    """Print the examples that got worse, and the command that lists all of them; nothing if none did."""
    if worst:
        out.print()
        for examples in worst.examples:
            print_examples(out, examples)
        echo(one_line(f"all of them: {worst.command}"))


def print_examples(out: Console, examples: WorstExamples) -> None:
    """Print examples below a heading: question, answers and values."""
    heading, *lines = examples.lines(min(out.width, MAX_WIDTH))
    out.print(Text(heading, style="bold"))
    for line in lines or ["  none"]:
        out.print(Text(line))


def print_next(out: Console, hint: Hint, page: str | None) -> None:
    """Print the page that shows the same, and the command to run next."""
    out.print()
    print_page(page)
    echo(f"next: {hint}")


def print_page(page: str | None) -> None:
    """Print the address of the page that shows the same, or how to serve the pages if no dashboard runs."""
    echo(one_line(f"page: {page}") if page else f"pages: {hints.dashboard()}")


def links_here() -> Links:
    """Return links to the dashboard of the store, if one runs or its address is given."""
    url = dashboard_url(Layout.at().root)
    return NoLinks() if url is None else Links(url)


def print_calls(experiments: Sequence[ExperimentOverview], calls_made: int) -> None:
    """Print the number of calls recorded for experiments in this run."""
    if not any(overview.has_unrecorded for overview in experiments):
        said = f"{calls_made} model calls made in this run"
    elif calls_made:
        said = f"{calls_made} recorded model calls made in this run"
    else:
        said = "the model calls of this run were not recorded"
    console().print(said)


def _metrics(results: Sequence[Result]) -> Table:
    """One row per metric and system; columns of differences only if there is a baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", *(("difference", "verdict") if compared else ()))
    out = table(*columns, headings=2, wrapped=("mean", "verdict"))
    out.columns[columns.index("mean")].justify = "left"  # aligned with the numbers by spaces before them
    shown = [result for result in results if result.is_worth_showing]
    width = max((len(result.mean_text) for result in shown if not result.shares), default=0)
    for result in shown:
        mean = f"{result.mean_text:>{width}} {result.interval_text}".rstrip()
        rest = (result.difference_text, styled(result.verdict_text, result)) if compared else ()
        out.add_row(result.metric, result.target, mean, *rest)
    return out


def all_columns(results: Sequence[Result]) -> Table:
    """One row per metric and system with counts and p-values; columns of differences only if there is a baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", "interval", "scored", "missing", "n/a")
    out = table(
        *columns, *(("difference", "pairs", *P_VERDICT) if compared else ()), headings=2, wrapped=("mean", "verdict")
    )
    for result in results:
        if result.is_worth_showing:
            cells = [result.metric, result.target, result.mean_text, result.interval_text, result.scored_text]
            verdict = styled(result.verdict_text, result)
            pairs = "" if result.n_pairs is None else str(result.n_pairs)
            rest = (result.difference_text, pairs, result.p_text, result.p_adjusted_text, verdict) if compared else ()
            out.add_row(*cells, loud(result.missing), str(result.not_applicable or ""), *rest)
    return out


def styled(verdict: str, result: Result) -> Text:
    """A verdict in the colour of its conclusion."""
    return Text(verdict, style=STYLES.get(result.conclusion or "", ""))


MAX_WIDTH = 120
"""The width at which examples are wrapped in a wider terminal."""

TRACES = 3
"""Number of errors that are shown with the frames of the user's code."""
P_VERDICT = ("p", "p adj.", "verdict")
STYLES = {"better": "bold green", "worse": "bold red", "not_enough_evidence": "yellow"}


def overview_line(overview: ExperimentOverview) -> Text:
    """An experiment's progress, latency and cost."""
    one = overview
    version = f", version {one.application_version}" if one.application_version else ""
    text = Text(f"{one.name} ({one.experiment_id}{version}) ")
    text.append(one.state, style="green" if one.state == "completed" else "bold red")
    text.append(f": {one.answered} of {one.planned} answered")
    if one.failed:
        text.append(f", {one.failed} failed", style="bold red")
    if one.mean_latency_s is not None:
        text.append(f", {one.mean_latency_s:.2f} s each")
    if one.calls_text:
        text.append(f"; {one.calls_text}")
    return text.append(f"; {one.reason}") if one.reason and not one.has_no_answer else text


def loud(count: int) -> Text:
    """A number of missing values, red unless it is 0."""
    return Text(str(count), style="bold red" if count else "")
