"""Compare any stored experiments with a baseline. Nothing here loads Prefect."""

from collections.abc import Sequence
from dataclasses import replace

import click
import rich.table
from rich.console import RenderableType
from rich.padding import Padding

from evalflows.analysis.changes import ChangeList, ExampleChange
from evalflows.cli import show
from evalflows.cli.late_commands import WITH_FINAL, Detail, print_json, with_detail, with_one_line_errors
from evalflows.cli.output import Console, Table, Text, cell_of_lines, console, echo, echo_error, table
from evalflows.cli.sections import IN_BRIEF, Section, lines_section, print_sections
from evalflows.reports.diff import (
    EXAMPLES_LISTED,
    ExperimentsDiff,
    comments_of,
    diff_document,
    diff_markdown,
    heading,
    no_examples,
    notes_of,
    values_of,
    values_text,
)
from evalflows.reports.headlines import verdict_sentences
from evalflows.reports.markdown_pages import after_diff
from evalflows.reports.results import Result, differences_in, remarks_on
from evalflows.reports.slices import SLICE_COLUMNS, examples_command, slice_cells
from evalflows.reports.word_diff import BRACKETS, WordDiff, answers_apart
from evalflows.reports.worst import brief_lines, change_text, cut_lines, plain_text
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.store.queries.lookup import find_experiments, names_of, run_groups, runs_named
from evalflows.store.store import Store, existing_store

SIDE_BY_SIDE = 100
"""Columns from which answers stand beside each other."""

MOST_LINES = 2
"""Lines of a question or a remark."""

_STYLES = {"removed": "red", "added": "green", "cut": "yellow"}


@click.command()
@click.argument("baseline")
@click.argument("candidates", nargs=-1, metavar="CANDIDATE...")
@click.option("--metric", "metrics", metavar="METRIC", multiple=True, help="Show only this metric. Repeatable.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Compare only the examples of this slice, such as metadata.topic=billing, or for which this SQL condition "
    "holds, such as \"metadata->>'topic' = 'billing' and position < 50\".",
)
@click.option(
    "--slices", is_flag=True, help="Find the slices of the examples that deviate from the overall difference."
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"Print everything, with at most this many examples per list. Default: {EXAMPLES_LISTED}.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "md", "html"]),
    default="table",
    help="json: exactly one document on standard output; md: a Markdown page; html: a self-contained page.",
)
@WITH_FINAL
@with_detail
@with_one_line_errors
def diff(
    baseline: str, candidates: tuple[str, ...], limit: int | None, form: str, detail: Detail, **settings: object
) -> None:
    """Compare stored experiments with a BASELINE, on the metrics that they share.

    Experiments are given by id, id prefix or name: NAME is the newest run of a name, NAME~1 the one before it. They may
    have been started together or separately. Nothing is run or stored, except that --slices stores which inputs are
    alike.
    """
    store = existing_store()
    if not candidates:
        raise InputError(
            f"diff: got one experiment, {baseline!r}, wanted a baseline and a candidate{_such_as(store, baseline)}"
        )
    from evalflows.reports.diff import diff_of

    found, *others = [_experiment(store, reference) for reference in (baseline, *candidates)]
    most = EXAMPLES_LISTED if limit is None else limit
    if settings["with_final"]:
        show.read_final(store, [found, *others])
    if settings["slices"]:
        from evalflows.analysis.input_groups import keep_groups  # late: it loads embeddings

        for experiment in others:
            keep_groups(store, store.read("experiments", experiment)[0].snapshot_id)
    with store.reading(once=True, about=[found, *others]):
        compared = diff_of(store, found, others, limit=most, **settings)  # type: ignore[arg-type]  # as declared
    if form == "json":
        print_json(diff_document(compared))
    elif form == "md":
        echo(diff_markdown(compared))
    elif form == "html":
        from evalflows.dashboard.compare import diff_page  # late: the other formats need no templates
        from evalflows.dashboard.links import NoLinks
        from evalflows.dashboard.rendering import Site, one_file

        site = Site(store=store, links=NoLinks())
        page = diff_page(site, compared)
        echo(one_file(page.title, [page], site))
    else:
        if detail is None and limit is None:
            print_brief(console(), compared)
        else:
            print_diff(console(), compared, wide=detail == "wide")
        show.print_next(console(), after_diff(store, compared), show.links_here().compare(found, *others))


def _such_as(store: Store, reference: str) -> str:
    """Propose two experiments if there are two that one reference may mean."""
    of_run = find_experiments(store, run_groups(store, find_experiments(store, reference))[0])
    if len(of_run) > 1:
        return f", such as {' '.join(names_of(store, of_run))}"
    return f", such as {reference}~1 {reference}" if runs_named(store, reference) > 1 else ""


def _experiment(store: Store, reference: str) -> str:
    (found,) = find_experiments(store, reference, just_one=True)
    if (runs := runs_named(store, reference)) > 1:
        older = f"{reference}~1 is the run before"
        echo_error(f"{reference!r}: the newest of {runs} runs of this name, {found}; {older}")
    return found


def print_brief(out: Console, diff: ExperimentsDiff, rest: str = "--all", most: int = IN_BRIEF) -> None:
    """Print the verdicts, the metrics, the worst examples, what else differs, and the states, in a few lines.

    `rest` is the command or option that prints what is cut, beyond `most` lines.
    """
    counts = {(count.candidate_experiment_id, count.metric): count for count in diff.counts}

    def worse_and_better(result: Result) -> str:
        count = counts.get((result.experiment_id, result.metric))
        return f"{count.regressed}/{count.improved}" if count else ""

    notes = [show.remark_line(remark) for remark in remarks_on(diff.results) if remark.kind != "rare"]
    notes += [Text(note, "yellow") for note in notes_of(diff)]
    sections = [
        show.verdicts_section(verdict_sentences(diff.results, diff.decisions)),
        show.metrics_section(diff.results, diff.decisions, worse_and_better),
        *(_worst(diff, changes, out.width) for changes in diff.lists if changes.change == "regressed"),
        lines_section(_counted(diff), "change", is_apart=True),
        lines_section(notes, least=min(1, len(notes))),
        lines_section(show.states_in_brief([*diff.candidates, diff.baseline]), "status line", least=1),
    ]
    print_sections(out, sections, most, rest)
    _print_searches(out, diff)  # whole, since they were asked for


def _worst(diff: ExperimentsDiff, changes: ChangeList, width: int) -> Section:
    lines = [
        brief_lines(example, f"{example.metric} {change_text(*values_of(example))}", min(width, show.MAX_WIDTH) - 2)
        for example in changes.examples
    ]
    return show.worst_section(
        heading=lambda n: heading(diff, replace(changes, examples=changes.examples[:n])),
        lines=lines,
        count=changes.count,
    )


def _counted(diff: ExperimentsDiff) -> list[Text]:
    """Return how many examples changed otherwise than for the worse, which are listed."""
    others = [
        heading(diff, replace(example_list, examples=[]))
        for example_list in diff.lists
        if example_list.change != "regressed"
    ]
    return [Text(line) for line in (others if diff.lists else [no_examples(diff)])]


def print_diff(out: Console, diff: ExperimentsDiff, *, wide: bool = False) -> None:
    """Print the table, what else differs, cost and latency, and the examples that changed."""
    out.print(show.all_columns(diff.results) if wide else _metrics(diff.results, out.width))
    for sentence in diff.sentences:
        out.print(Text(sentence, style="bold"))
    _print_notes(out, diff)
    for overview in (diff.baseline, *diff.candidates):
        out.print(show.overview_line(overview))
    _print_searches(out, diff)
    _print_lists(out, diff)


def print_changes(out: Console, diff: ExperimentsDiff) -> None:
    """Print what else differs, and the examples that changed."""
    _print_notes(out, diff)
    _print_lists(out, diff)


def _print_notes(out: Console, diff: ExperimentsDiff) -> None:
    for note in notes_of(diff):
        out.print(Text(note, style="yellow"))


def _print_searches(out: Console, diff: ExperimentsDiff) -> None:
    """Print which slices of the examples depart from the overall difference, worse ones first."""
    for search in diff.searches:
        out.print()
        out.print(Text(diff.search_text(search), style="bold"))
        if not search.found:
            continue
        rows = table(*SLICE_COLUMNS, headings=2, wrapped=("slice",))
        for departing in search.found:
            rows.add_row(*slice_cells(departing))
        out.print(rows)
        if command := examples_command(search, diff.baseline.experiment_id):
            echo(f"examples of the first: {command}")


def _print_lists(out: Console, diff: ExperimentsDiff) -> None:
    for changes in diff.lists:
        _print_list(out, diff, changes)
    if not diff.lists:
        out.print(no_examples(diff))


def _metrics(results: Sequence[Result], width: int) -> Table:
    """Return one row per metric and system.

    Missing values have a column if there are any, p-values if there is room.
    """
    shown = [result for result in results if result.is_worth_showing]
    has_missing = any(result.missing for result in shown)
    p_values = ["p adj."] if width >= SIDE_BY_SIDE or not has_missing else []
    columns = ["metric", "system", "mean", "difference", *p_values, "verdict", *(["missing"] if has_missing else [])]
    out = table(*columns, headings=2, wrapped=("mean", "verdict"))
    out.columns[columns.index("mean")].justify = "left"  # aligned with the numbers by spaces before them
    figures = max((len(result.mean_text) for result in shown if not result.shares), default=0)
    differences = differences_in(results)
    for result in shown:
        cells: dict[str, str | Text] = {
            "metric": result.metric,
            "system": result.target,
            "mean": f"{result.mean_text:>{figures}} {result.interval_text}".rstrip(),
            "difference": cell_of_lines(differences[result.experiment_id, result.metric]),
            "p adj.": result.p_adjusted_text,
            "verdict": show.styled(result.verdict_text, result.conclusion),
            "missing": show.loud(result.missing),
        }
        out.add_row(*(cells[name] for name in columns))
    return out


def _print_list(out: Console, diff: ExperimentsDiff, changes: ChangeList) -> None:
    out.print()
    out.print(Text(heading(diff, changes), style="bold"))
    for change in changes.examples:
        width = min(out.width, show.MAX_WIDTH) - 2
        begin = f"{one_line(change.example_id)}  {one_line(values_text(change))}  "
        for line in cut_lines(begin, plain_text(change.inputs), width, MOST_LINES, indent=2):
            out.print(Text(f"  {line}"))
        out.print(_answers(change, width, is_coloured=out.is_terminal and not out.no_color))
        for name, text in comments_of(change):
            for line in cut_lines(f"  {name}: ", text, width, MOST_LINES):
                out.print(Text(f"  {line}"))


def _answers(change: ExampleChange, width: int, *, is_coloured: bool) -> RenderableType:
    """Return both answers with the words that differ: side by side in a wide terminal, else one below the other."""
    answers = answers_apart(change)
    baseline, candidate = (_marked(side, is_coloured) for side in (answers.baseline, answers.candidate))
    grid = rich.table.Table.grid(padding=(0, 2, 0, 0))
    if width + 2 >= SIDE_BY_SIDE:
        for _ in range(2):
            grid.add_column(width=(width - 6) // 2, overflow="fold")
        grid.add_row(Text("baseline:", "dim"), Text("answer:", "dim"))
        grid.add_row(baseline, candidate)
    else:
        grid.add_column(width=len("baseline:"))
        grid.add_column(width=width - len("baseline:") - 6, overflow="fold")
        grid.add_row(Text("baseline:", "dim"), baseline)
        grid.add_row(Text("answer:", "dim"), candidate)
    return Padding(grid, (0, 0, 0, 4))


def _marked(parts: WordDiff, is_coloured: bool) -> Text:
    """Return an answer with the words that differ in colour; without colours in [-old-] and {+new+}."""
    out = Text()
    for kind, text in parts:
        begin, end = ("", "") if is_coloured else BRACKETS.get(kind, ("", ""))
        out.append(f"{begin}{text}{end}", _STYLES.get(kind, ""))
    return out
