"""The sections, tables and sentences that are printed of experiments. Nothing here loads Prefect."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from textwrap import indent
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from evalflows.analysis.figures import NO_CALLS
from evalflows.cli.output import Console, Table, Text, cell_of_lines, console, echo, echo_error, table
from evalflows.cli.sections import Section, lines_section
from evalflows.dashboard.links import Links, NoLinks
from evalflows.reports.confusion import MOST_LABELS, Confusion
from evalflows.reports.decisions import Decision
from evalflows.reports.experiment_report import ExperimentOverview, ExperimentsReport
from evalflows.reports.grids import (
    EFFECT_HEADER,
    GridTable,
    cell_text,
    effect_cells,
    effects_title,
    grid_sentences,
    legend,
    tables_of,
)
from evalflows.reports.results import Remark, Result, Severity, differences_in, means_in, rare_values
from evalflows.reports.worst import HIDDEN, Worst, WorstExamples, WorstItem, brief_lines, change_text, value_text
from evalflows.specs import hints
from evalflows.specs.dashboard_address import dashboard_url
from evalflows.specs.escaping import one_line
from evalflows.specs.hints import Hint
from evalflows.specs.metric_names import MEASURES, metric_of
from evalflows.store.layout import Layout
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.grid import Grid, MainEffect

MOST_VERDICTS = 4
"""Sentences that stay however many other lines there are."""

MOST_METRICS, MOST_DECIDING = 3, 6
"""Rows of metrics that stay however many other lines there are: of any, and of those in rules or worse."""

MOST_EFFECTS = 3
"""Main effects that stay however many other lines there are."""

MOST_WORST = 3
"""Examples, at most."""

MOST_SHOWN_LABELS = 5
"""Labels of a confusion matrix, at most, that is shown in brief."""

MAX_WIDTH = 120
"""The width at which examples are wrapped in a wider terminal."""

TRACES = 3
"""Number of errors that are shown with the frames of the user's code."""
P_VERDICT = ("p", "p adj.", "verdict")
SEVERITY_STYLES: dict[Severity, str] = {"bad": "bold red", "warning": "yellow", "note": "bold"}
STYLES = {"better": "bold green", "worse": "bold red", "not_enough_evidence": "yellow"}


def print_experiments(report: ExperimentsReport, *, wide: bool = False) -> None:
    """Print results: each metric with its interval, its difference from the baseline and verdict, missing scores, cost
    and errors; with `wide` also counts and p-values."""
    out = console()
    for grid in report.grids:
        out.print(_whole_grid(grid, out.width))
    out.print(all_columns(report.results) if wide else _metrics(report.results))
    for sentence in report.verdicts:
        out.print(Text(sentence, style="bold"))
    for confusion in report.confusions:
        section = _confusion_section(confusion, MOST_LABELS)
        out.print(section.draw(section.items))
    for line in report.by_field:
        out.print(Text(line))
    for remark in report.remarks:
        if remark.kind != "failure":
            out.print(remark_line(remark))
    for overview in report.experiments:
        out.print(overview_line(overview))
    if report.hides_final:
        out.print(Text(HIDDEN))
    for number, failure in enumerate(report.failures):
        out.print(Text(f"  {failure.text}", style="yellow"))
        if failure.trace and number < TRACES:
            out.print(Text(indent(failure.trace, "    "), lines=True))


def remark_line(remark: Remark) -> Text:
    """Return a remark in the colour of its severity."""
    return Text(remark.text, style=SEVERITY_STYLES[remark.severity])


def verdicts_section(verdicts: Sequence[str]) -> Section:
    """Return the verdict on each candidate."""
    return lines_section([Text(text, "bold") for text in verdicts], "verdict", least=MOST_VERDICTS)


def _whole_grid(grid: "Grid", width: int) -> RenderableType:
    return Group(*(part for section in _grid_sections(grid, width) for part in (section.draw(section.items), Text())))


def _grid_sections(grid: "Grid", width: int) -> Iterator[Section]:
    """Yield which cell of a matrix is the best, the cells, and the main effects."""
    yield lines_section([Text(text, "bold") for text in grid_sentences(grid)], "sentence", least=2)

    def draw_cells(some: Sequence[GridTable]) -> RenderableType:
        parts = [
            part for cells in some for part in (Text(cells.title, "bold"), _cells_table(cells, grid.metric, width))
        ]
        return Group(*parts, *([Text(said)] if (said := legend(grid)) else []))

    def draw_effects(some: "Sequence[MainEffect]") -> RenderableType:
        drawn = table(*EFFECT_HEADER, headings=1, wrapped=("verdict",))
        for effect in some:
            *cells, verdict = effect_cells(effect, grid.metric)
            drawn.add_row(*cells, styled(verdict, effect.conclusion))
        return Group(Text(effects_title(grid), "bold"), drawn)

    yield Section(items=tables_of(grid), draw=draw_cells, what="table", least=1, is_apart=True)
    yield Section(
        items=grid.effects,
        draw=draw_effects,
        what="main effect",
        least=min(MOST_EFFECTS, len(grid.effects)),
        is_apart=True,
    )


def _cells_table(cells: GridTable, metric: str, width: int) -> Table:
    """Return a table with a line per row; if that is too wide with intervals below the means, else without them."""
    in_lines, in_two, alone = tables = [table(*cells.header, headings=1) for _ in range(3)]
    for level, row in cells.rows:
        texts = [cell_text(cell, metric) for cell in row]
        in_lines.add_row(level, *(" ".join(text).strip() for text in texts))
        in_two.add_row(level, *map(cell_of_lines, texts))
        alone.add_row(level, *(mean for mean, _ in texts))
    return next((drawn for drawn in tables if drawn.fits(width)), alone)


def results_sections(
    report: ExperimentsReport,
    width: int,
    calls_made: int | None = None,
    limits: Section | None = None,
    most_worst: int | None = MOST_WORST,
) -> list[Section]:
    """Return the metrics, the worst examples (at most so many; None: all of the report), the limits of decisions, what
    restricts the results, and the state of the experiments."""
    remarks = report.remarks
    elsewhere = ("failure", "rare", *(("quarantine",) if limits else ()))  # decisions say the last, too
    notes = [remark_line(remark) for remark in remarks if remark.kind not in elsewhere]
    failures = [Text(f"  {remark.text}", "yellow") for remark in remarks if remark.kind == "failure"]
    # of a metric: then the error says why
    has_nothing = any(result.missing and not result.scored for result in report.results)
    said = None if calls_made is None else calls_made_text(report.experiments, calls_made)
    made = [Text(said)] if said else []
    is_apart = not notes and not failures
    bad = sum(remark.severity == "bad" for remark in remarks)
    least = max(bad, min(1, len(notes)))  # no mean without what it lacks
    metrics = metrics_section(report.results, report.decisions)
    return [
        *(section for grid in report.grids[:1] for section in _grid_sections(grid, width)),
        Section(
            items=report.grids[1:],
            draw=lambda grids: Group(*(_whole_grid(grid, width) for grid in grids)),
            what="grid",
            least=0,
            is_apart=True,
        ),
        replace(metrics, least=0) if report.grids else metrics,
        *map(_confusion_section, report.confusions),
        lines_section(map(Text, report.by_field), "field", least=min(1, len(report.by_field))),
        *worst_sections(report.worst, min(width, MAX_WIDTH), most_worst),
        *([lines_section([Text(HIDDEN)])] if report.hides_final else []),
        *([limits] if limits else []),
        lines_section(notes, least=least, is_apart=limits is None),
        lines_section(failures, "failure", least=min(len(failures), int(has_nothing))),
        lines_section([*states_in_brief(_bad_first(report)), *made], "status line", least=1, is_apart=is_apart),
    ]


def _confusion_section(confusion: Confusion, most: int = MOST_SHOWN_LABELS) -> Section:
    """Return a confusion matrix, or if it has more than so many labels its most frequent errors."""
    if len(confusion.labels) > most:
        return lines_section([Text(confusion.errors_text)], "confusion matrix", least=1)
    header, rows = confusion.cells

    def draw(some: Sequence[list[str]]) -> RenderableType:
        drawn = table(*header)
        for row in some:
            drawn.add_row(*row)
        return Group(Text(confusion.title, "bold"), drawn)

    return Section(items=rows, draw=draw, what="label", is_apart=True)


def _bad_first(report: ExperimentsReport) -> list[ExperimentOverview]:
    """Those that are incomplete or have failures first, baselines last."""
    baselines = {result.baseline_experiment_id for result in report.results}
    return sorted(
        report.experiments,
        key=lambda run: (run.state == "completed" and not run.failed, run.experiment_id in baselines),
    )


def metrics_section(
    results: Sequence[Result], decisions: Sequence[Decision], counts: Callable[[Result], str] | None = None
) -> Section:
    """Return one line per metric and candidate: both means, the difference and the verdict; means alone without a
    baseline.

    Metrics of the decisions' rules stand first, then those that are worse. Built-in measures that do not differ stand
    last. `counts` gives the text of a last column, of what got worse and better. Below the lines stands why a verdict
    is not what its interval shows.
    """
    shown = [result for result in results if result.is_worth_showing]
    compared = [result for result in shown if result.baseline_experiment_id is not None]
    both = means_in(shown)
    several = len({result.experiment_id for result in compared or shown}) > 1
    in_rules = [*dict.fromkeys(metric_of(rule.metric) for decision in decisions for rule in decision.rules)]
    ordered = sorted(compared or shown, key=lambda row: _place(row, in_rules))
    deciding = sum(row.metric in in_rules or row.conclusion == "worse" for row in ordered)
    least = min(len(ordered), max(MOST_METRICS, min(MOST_DECIDING, deciding)))
    if not compared:
        return Section(items=ordered, draw=_metrics, what="metric", least=least, is_apart=True)
    columns = ["metric", *(["system"] if several else []), "means", "difference", "verdict"]

    def draw(rows: Sequence[Result]) -> RenderableType:
        out = table(*columns, *(["worse/better"] if counts else []), headings=1, wrapped=("verdict",))
        for row in rows:
            means = both[row.experiment_id, row.metric]
            out.add_row(
                row.metric,
                *([row.target] if several else []),
                means.text if means else row.mean_text,
                cell_of_lines([row.difference_text, *([means.pairs] if means and means.pairs else [])]),
                styled(row.verdict_text, row.conclusion),
                *([counts(row)] if counts else []),
            )
        return Group(out, *map(remark_line, rare_values(rows)))

    alone = {result.metric for result in shown} - {row.metric for row in compared}
    return Section(items=ordered, draw=draw, what="metric", least=least, count=len(ordered) + len(alone), is_apart=True)


def _place(row: Result, in_rules: Sequence[str]) -> tuple[int, int]:
    """Metrics of rules in the order of these, then those that are worse, other metrics of evaluators, built-in measures
    that differ, and the others."""
    if row.metric in in_rules:
        return 0, in_rules.index(row.metric)
    if row.conclusion == "worse":
        return 1, 0
    return 2, 0 if row.metric not in MEASURES else 1 if row.conclusion == "better" else 2


def worst_sections(worst: Worst | None, width: int, most: int | None = MOST_WORST) -> Iterator[Section]:
    """Yield the worst examples in two lines each, every example once, below what they are worst by."""
    if worst is None:
        return
    items: dict[str, tuple[WorstExamples, WorstItem]] = {}
    for examples in worst.examples:
        for item in examples.items:
            items.setdefault(item.example_id, (examples, item))
    first = worst.examples[0]
    heading = first.heading if len(worst.examples) == 1 else f"worst examples: {first.name}"
    count = first.n_worse
    yield worst_section(
        heading=lambda n: heading if count is None or n == count else f"{heading}, {n} of {count}",
        lines=[_brief(*pair, width, named=len(worst.examples) > 1) for pair in items.values()],
        count=count,
        most=most,
    )


def worst_section(
    *,
    heading: Callable[[int], str],
    lines: Sequence[Sequence[str]],
    count: int | None = None,
    most: int | None = MOST_WORST,
) -> Section:
    """Return the first of some examples in a few lines each, below a heading for as many as are shown.

    `count` is the number of all; None if it says nothing.
    """
    first = list(lines)[:most]

    def draw(rows: Sequence[Sequence[str]]) -> RenderableType:
        return Group(Text(heading(len(rows)), "bold"), *(Text(f"  {line}") for row in rows for line in row))

    return Section(items=first, draw=draw, what="example", least=min(1, len(first)), count=count, is_apart=True)


def _brief(examples: WorstExamples, item: WorstItem, width: int, *, named: bool) -> list[str]:
    metric, now = examples.metric, value_text(item.value, item.missing, examples.metric)
    was = value_text(item.baseline_value, item.baseline_missing, metric)
    values = change_text(was, now) if examples.baseline else now
    return brief_lines(item, f"{metric} {values}" if named else values, width - 2)


def print_worst(out: Console, worst: Worst | None) -> None:
    """Print the examples that got worse, and the command that lists all of them; nothing if none did."""
    if worst:
        out.print()
        for examples in worst.examples:
            print_examples(out, examples)
        if worst.command:
            echo(one_line(f"all of them: {worst.command}"))


def print_examples(out: Console, examples: WorstExamples) -> None:
    """Print examples below a heading: question, answers and values."""
    heading, *lines = examples.lines(min(out.width, MAX_WIDTH))
    out.print(Text(heading, style="bold"))
    for line in lines or ["  none"]:
        out.print(Text(line))


def read_final(store: Store, experiments: Sequence[str]) -> None:
    """Keep that somebody reads single final examples of experiments, if they have any, and say so."""
    from evalflows.analysis.final_looks import keep_reading  # late: specs are slow to import

    for said in keep_reading(store, experiments):
        echo_error(said)


def print_next(out: Console, hint: Hint | None, page: str | None) -> None:
    """Print the page that shows the same, and the command to run next, if there is one."""
    out.print()
    print_page(page)
    if hint is not None:
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
    if said := calls_made_text(experiments, calls_made):
        console().print(said)


def calls_made_text(experiments: Sequence[ExperimentOverview], calls_made: int) -> str | None:
    """Return the number of calls recorded for experiments in this run, in words; None if they have none in any run, or
    made only requests whose cost is known."""
    if not calls_made and all(experiment.calls_text == NO_CALLS for experiment in experiments):
        return None
    if not any(overview.has_unrecorded for overview in experiments):
        return (
            f"{calls_made} {'' if any(of.application_calls for of in experiments) else 'model '}calls made in this run"
        )
    if calls_made:
        return f"{calls_made} recorded model calls made in this run"
    return "the model calls of this run were not recorded" if any(of.unrecorded for of in experiments) else None


def _metrics(results: Sequence[Result]) -> Table:
    """Return one row per metric and system; columns of differences only if there is a baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", *(("difference", "verdict") if compared else ()))
    out = table(*columns, headings=2, wrapped=("mean", "verdict"))
    out.columns[columns.index("mean")].justify = "left"  # aligned with the numbers by spaces before them
    shown = [result for result in results if result.is_worth_showing]
    width = max((len(result.mean_text) for result in shown if not result.shares), default=0)
    differences = differences_in(results)
    for result in shown:
        mean = f"{result.mean_text:>{width}} {result.interval_text}".rstrip()
        difference = cell_of_lines(differences[result.experiment_id, result.metric])
        rest = (difference, styled(result.verdict_text, result.conclusion)) if compared else ()
        out.add_row(result.metric, result.target, mean, *rest)
    return out


def all_columns(results: Sequence[Result]) -> Table:
    """Return one row per metric and system with counts and p-values; columns of differences only if there is a
    baseline."""
    compared = any(result.baseline for result in results)
    columns = ("metric", "system", "mean", "interval", "scored", "missing", "n/a")
    against = ("difference", "pairs", *P_VERDICT) if compared else ()
    out = table(*columns, *against, headings=2, wrapped=("mean", "verdict"))
    differences = differences_in(results)
    for result in results:
        if result.is_worth_showing:
            cells = [result.metric, result.target, result.mean_text, result.interval_text, result.scored_text]
            verdict = styled(result.verdict_text, result.conclusion)
            pairs = "" if result.n_pairs is None else str(result.n_pairs)
            difference = cell_of_lines(differences[result.experiment_id, result.metric])
            rest = (difference, pairs, result.p_text, result.p_adjusted_text, verdict) if compared else ()
            out.add_row(*cells, loud(result.missing), str(result.not_applicable or ""), *rest)
    return out


def styled(verdict: str, conclusion: str | None) -> Text:
    """Return a verdict in the colour of its conclusion."""
    return Text(verdict, style=STYLES.get(conclusion or "", ""))


def overview_line(overview: ExperimentOverview, *, with_id: bool = True) -> Text:
    """Return an experiment's progress, latency and cost."""
    known = [overview.experiment_id] if with_id else []
    known += [f"version {overview.application_version}"] if overview.application_version else []
    text = Text(f"{overview.name} ({', '.join(known)}) " if known else f"{overview.name} ")
    text.append(overview.state, style="green" if overview.state == "completed" else "bold red")
    text.append(f": {overview.answered} of {overview.planned} answered")
    if overview.cut_off:
        text.append(f", {overview.cut_off} of them cut off at the token limit", style="bold red")
    if overview.failed:
        text.append(f", {overview.failed} failed", style="bold red")
    if overview.mean_latency_s is not None:
        text.append(f", {overview.mean_latency_s:.2f} s each")
    if overview.calls_text:
        text.append(f"; {overview.calls_text}")
    return text.append(f"; {overview.reason}") if overview.reason and not overview.has_no_answer else text


def states_in_brief(experiments: Sequence[ExperimentOverview]) -> list[Text]:
    """Return the lines without ids; experiments of the same state, counts and cost share one."""
    lines: dict[str, tuple[Text, list[str]]] = {}
    for experiment in experiments:
        line = overview_line(replace(experiment, name=""), with_id=False)
        lines.setdefault(line.plain, (line, []))[1].append(experiment.name)
    return [Text(", ".join(dict.fromkeys(names))).append(line) for line, names in lines.values()]


def loud(count: int) -> Text:
    """Return a number of missing values, red unless it is 0."""
    return Text(str(count), style="bold red" if count else "")
