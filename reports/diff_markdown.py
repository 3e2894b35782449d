"""A diff as a Markdown page."""

from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.diff_texts import answers_apart, heading, no_examples, notes_of, remarks, values_text
from evalflows.reports.example_changes import ChangeList, ExampleChange
from evalflows.reports.experiments_report import ExperimentOverview
from evalflows.reports.item_lines import plain_text
from evalflows.reports.markdown import MOST_CHARACTERS, escaped, markdown_table
from evalflows.reports.results import Result
from evalflows.reports.word_diff import WordDiff


def diff_markdown(diff: ExperimentsDiff) -> str:
    """Return the table, what else differs, cost and latency, and the examples that changed."""
    candidates = ", ".join(diff.names[one.experiment_id] for one in diff.candidates)
    header = ("metric", "system", "mean", "interval", "difference", "p adjusted", "verdict", "missing")
    return "\n\n".join(
        part
        for part in (
            f"# {escaped(candidates)} against {escaped(diff.names[diff.baseline.experiment_id])}",
            _bullets([*diff.sentences, *notes_of(diff)]),
            markdown_table(header, [_cells(result) for result in diff.results if result.is_worth_showing]),
            markdown_table(_OF_EXPERIMENTS, [_experiment(diff, one) for one in (diff.baseline, *diff.candidates)]),
            *([_list(diff, changes) for changes in diff.lists] or [no_examples(diff)]),
        )
        if part
    )


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _cells(result: Result) -> list[str]:
    figures = [result.mean_text, result.interval_text, result.difference_text, result.p_adjusted_text]
    return [result.metric, result.target, *figures, result.verdict_text, str(result.missing)]


_OF_EXPERIMENTS = ("system", "experiment", "state", "answered", "mean latency (s)", "cost (USD)")


def _experiment(diff: ExperimentsDiff, one: ExperimentOverview) -> list[str]:
    latency = "" if one.mean_latency_s is None else f"{one.mean_latency_s:.2f}"
    cost = "unknown" if one.cost_usd is None else f"{one.cost_usd:.4f}"
    name = diff.names[one.experiment_id]
    return [name, one.experiment_id, one.state, f"{one.answered} of {one.planned}", latency, cost]


def _list(diff: ExperimentsDiff, changes: ChangeList) -> str:
    return "\n\n".join([f"## {escaped(heading(diff, changes))}", *map(_example, changes.examples)])


def _example(change: ExampleChange) -> str:
    answers = answers_apart(change)
    lines = [
        f"**{escaped(change.example_id)}** {escaped(values_text(change))}",
        f"- question: {escaped(plain_text(change.inputs)[:MOST_CHARACTERS])}",
        f"- baseline: {_marked(answers.baseline)}",
        f"- answer: {_marked(answers.candidate)}",
        *(f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in remarks(change)),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _marked(parts: WordDiff) -> str:
    """Mark what was removed and added. Markdown's own marks would not hold between a word and a punctuation mark."""
    return "".join(_MARKS.get(kind, "{}").format(_spaced(text)) for kind, text in parts)


_MARKS = {"removed": "<del>{}</del>", "added": "<ins>{}</ins>"}


def _spaced(text: str) -> str:
    """Escape a part of a text, which drops the spaces at its ends, and put them back."""
    words = text.strip()
    begin, end = text[:1].isspace(), text[-1:].isspace() and bool(words)
    return f"{' ' * begin}{escaped(words)}{' ' * end}"
