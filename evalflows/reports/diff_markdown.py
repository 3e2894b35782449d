"""A diff of experiments as Markdown."""

from collections.abc import Mapping, Sequence

from evalflows.analysis.changes import ChangeList, ExampleChange
from evalflows.analysis.figures import usd
from evalflows.reports.diff import ExperimentsDiff, comments_of, heading, no_examples, notes_of, values_text
from evalflows.reports.experiment_report import ExperimentOverview
from evalflows.reports.formats import MOST_CHARACTERS, escaped, markdown_table
from evalflows.reports.results import Result, differences_in
from evalflows.reports.slices import SLICE_COLUMNS, slice_cells
from evalflows.reports.word_diff import WordDiff, answers_apart
from evalflows.reports.worst import plain_text

_OF_EXPERIMENTS = ("system", "experiment", "state", "answered", "mean latency (s)", "cost (USD)")

_MARKS = {"removed": "<del>{}</del>", "added": "<ins>{}</ins>"}


def diff_markdown(diff: ExperimentsDiff) -> str:
    """Return the table, what else differs, cost and latency, and the examples that changed."""
    candidates = ", ".join(diff.names[candidate.experiment_id] for candidate in diff.candidates)
    header = ("metric", "system", "mean", "interval", "difference", "p adjusted", "verdict", "missing")
    differences = differences_in(diff.results)
    return "\n\n".join(
        section
        for section in (
            f"# {escaped(candidates)} against {escaped(diff.names[diff.baseline.experiment_id])}",
            "\n".join(f"- {escaped(line)}" for line in (*diff.sentences, *notes_of(diff))),
            markdown_table(header, [_cells(result, differences) for result in diff.results if result.is_worth_showing]),
            markdown_table(_OF_EXPERIMENTS, [_experiment(diff, side) for side in (diff.baseline, *diff.candidates)]),
            *(
                section
                for search in diff.searches
                for section in (
                    escaped(diff.search_text(search)),
                    markdown_table(SLICE_COLUMNS, [slice_cells(s) for s in search.found]) if search.found else "",
                )
            ),
            *([_markdown_list(diff, changes) for changes in diff.lists] or [no_examples(diff)]),
        )
        if section
    )


def _cells(result: Result, differences: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    difference = ", ".join(differences[result.experiment_id, result.metric])
    figures = [result.mean_text, result.interval_text, difference, result.p_adjusted_text]
    return [result.metric, result.target, *figures, result.verdict_text, str(result.missing)]


def _experiment(diff: ExperimentsDiff, overview: ExperimentOverview) -> list[str]:
    latency = "" if overview.mean_latency_s is None else f"{overview.mean_latency_s:.2f}"
    cost = "unknown" if overview.cost_usd is None or overview.unrecorded else usd(overview.cost_usd)
    name = diff.names[overview.experiment_id]
    return [name, overview.experiment_id, overview.state, f"{overview.answered} of {overview.planned}", latency, cost]


def _markdown_list(diff: ExperimentsDiff, changes: ChangeList) -> str:
    return "\n\n".join([f"## {escaped(heading(diff, changes))}", *map(_example, changes.examples)])


def _example(change: ExampleChange) -> str:
    answers = answers_apart(change)
    lines = [
        f"**{escaped(change.example_id)}** {escaped(values_text(change))}",
        f"- question: {escaped(plain_text(change.inputs)[:MOST_CHARACTERS])}",
        f"- baseline: {_marked(answers.baseline)}",
        f"- answer: {_marked(answers.candidate)}",
        *(f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in comments_of(change)),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _marked(parts: WordDiff) -> str:
    """Mark what was removed and added. Markdown's own marks would not hold between a word and a punctuation mark."""
    return "".join(_MARKS.get(kind, "{}").format(_spaced(text)) for kind, text in parts)


def _spaced(text: str) -> str:
    """Escape a part of a text, which drops the spaces at its ends, and put them back."""
    words = text.strip()
    begin, end = text[:1].isspace(), text[-1:].isspace() and bool(words)
    return f"{' ' * begin}{escaped(words)}{' ' * end}"
