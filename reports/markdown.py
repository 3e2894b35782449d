"""Markdown pages and tables for Prefect's artifacts."""

from collections.abc import Iterable, Sequence

from evalflows.reports.results import Result


def markdown(run_group: str, results: Sequence[Result], summary: Sequence[str], links: Sequence[str]) -> str:
    """Return the page of a run group: its summary, a table of every metric and system, and links."""
    header = (
        "system",
        "metric",
        "mean",
        "interval",
        "difference",
        "p",
        "p adjusted",
        "verdict",
        "cost (USD)",
        "missing",
        "n",
    )
    table = markdown_table(header, [_cells(result) for result in results if result.is_worth_showing])
    return "\n\n".join(
        [
            "\n".join(f"- {escaped(sentence)}" for sentence in summary),
            table,
            "\n".join(f"- {link}" for link in links),
            f"In the shell: `evalflows show {run_group}`",
        ]
    )


def _cells(result: Result) -> list[str]:
    return [
        result.target,
        result.metric,
        result.mean_text,
        result.interval_text,
        result.difference_text,
        result.p_text,
        result.p_adjusted_text,
        result.verdict_text,
        result.cost_text,
        str(result.missing),
        result.scored_text,
    ]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table, escaping its cells."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)])


def escaped(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")
