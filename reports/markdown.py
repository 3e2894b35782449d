"""Markdown pages and tables for Prefect's artifacts."""

import re
from collections.abc import Iterable, Sequence

from evalflows.reports.results import Result
from evalflows.specs.safe_text import joined, one_line


def markdown(run_group: str, results: Sequence[Result], summary: Sequence[str], links: Sequence[str]) -> str:
    """Return the page of a run group: its summary, a table of every metric and system, and `links` in Markdown."""
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
            f"In the shell: {code(f'evalflows show {run_group}')}",
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
    """Escape text from outside so that Markdown shows it as it is, on one line: no link, image, HTML or formatting.

    All ASCII punctuation gets a backslash. That does not stop renderers that look for addresses in the finished text,
    so an invisible word joiner (U+2060) breaks those up.
    """
    line = _ADDRESS.sub("\\g<0>\u2060", one_line(joined(text)))
    return _PUNCTUATION.sub(r"\\\g<0>", line)


def code(text: str) -> str:
    """Format text from outside as code, for use outside of tables."""
    line = one_line(text)
    longest = max(map(len, re.findall("`+", line)), default=0)
    ticks, space = "`" * (longest + 1), " " if longest or line.strip() != line else ""
    return f"{ticks}{space}{line}{space}{ticks}"


_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_ADDRESS = re.compile(r":(?=/)|\bwww(?=\.)|@|\b(?:mailto|xmpp)(?=:)", re.IGNORECASE)
"""Where an address is broken up that renderers turn into a link: http://…, www.…, name@host, mailto:…"""
