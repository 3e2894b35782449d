"""Pages in Markdown, for Prefect's artifacts, summaries of CI jobs, and `evalflows report --format md`."""

from collections.abc import Sequence

from evalflows.reports.comparison import ComparisonReport
from evalflows.reports.decisions import Decision
from evalflows.reports.gate_report import GateReport
from evalflows.reports.markdown import code, escaped, markdown_table
from evalflows.reports.results import Result


def gate_page(report: GateReport) -> str:
    """Return the page of a gate run: the decisions, then a table for each candidate and its baseline."""
    parts = [f"**Incomplete:** {escaped(report.incomplete)}"] if report.incomplete else []
    parts.append(decisions_page(report.decisions))
    for one in report.reports:
        parts.append(results_page(one.experiments[-1].experiment_id, one.results, one.sentences, []))
    return "\n\n".join(parts) + "\n"


def results_page(run_group: str, results: Sequence[Result], summary: Sequence[str], links: Sequence[str]) -> str:
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
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in summary),
        table,
        "\n".join(f"- {link}" for link in links),
        f"In the shell: {code(f'evalflows show {run_group}')}",
    ]
    return "\n\n".join(part for part in parts if part)


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


def decisions_page(decisions: Sequence[Decision]) -> str:
    """Return the page of decisions: each with its rule results, and its notes on what else differed."""
    parts = []
    for decision in decisions:
        rules = [(rule["outcome"], rule["rule"].replace("_", " "), rule["text"]) for rule in decision.rules]
        table = markdown_table(("", "rule", ""), rules)
        notes = "\n".join(f"- {escaped(note)}" for note in decision.notes)
        heading = f"## {escaped(decision.conclusion)}\n\n{escaped(decision.title)}"
        command = code(f"evalflows explain {decision.decision_id}")
        parts.append("\n\n".join(part for part in (heading, table, notes, command) if part))
    return "\n\n".join(parts)


def comparison_page(report: ComparisonReport) -> str:
    """Return the page of a comparison: its summary, win rates, ranking, judge biases, and the command for more."""
    rates = [
        (
            *(rate.metric, rate.candidate, rate.baseline, rate.what, rate.rate_text),
            *(rate.p_text, rate.p_adjusted_text, rate.verdict_text, *rate.counts),
        )
        for rate in report.win_rates
    ]
    ranking = [(row.metric, row.rank_text, row.experiment, row.rating_text, row.rate_text) for row in report.ranking]
    head = ("metric", "candidate", "baseline", "", "win rate", "p", "p adjusted", "verdict", "wins", "ties", "losses")
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in report.sentences),
        markdown_table((*head, "missing"), rates),
        markdown_table(("metric", "rank", "experiment", "rating", "win rate over all"), ranking),
        "\n".join(f"- {escaped(bias.text)}" for bias in report.known_biases),
        f"In the shell: {code(f'evalflows show {report.overview.comparison_id}')}",
    ]
    return "\n\n".join(part for part in parts if part)
