"""Pages in Markdown, for Prefect's artifacts, summaries of CI jobs, and `evalflows report --format md`."""

from collections.abc import Callable, Iterator, Sequence

from evalflows.reports.comparison import ComparisonReport
from evalflows.reports.decisions import Decision
from evalflows.reports.experiments_report import ExperimentsReport
from evalflows.reports.gate_report import GateReport
from evalflows.reports.item_lines import item_texts, item_values, plain_text
from evalflows.reports.markdown import MOST_CHARACTERS, code, escaped, markdown_table, where_shown
from evalflows.reports.results import Result
from evalflows.reports.worst_examples import Worst, WorstExamples

Address = Callable[..., str | None]
"""The address of a page of the dashboard by its parts, such as `experiments` and an id; None if it is not known."""


def nowhere(*parts: str) -> None:
    """No page has an address."""


def gate_page(report: GateReport, address: Address = nowhere) -> str:
    """Return the page of a gate run: the decisions, then a table for each candidate and its baseline."""
    parts = [f"**Incomplete:** {escaped(report.incomplete)}"] if report.incomplete else []
    parts.append(decisions_page(report.decisions, address))
    for one in report.reports:
        parts.append(_results_of(one, address))
    return "\n\n".join(parts) + "\n"


def experiments_page(report: ExperimentsReport, address: Address = nowhere) -> str:
    """Return the page of experiments: their results, and the decisions on them."""
    parts = [_results_of(report, address), decisions_page(report.decisions, address)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _results_of(report: ExperimentsReport, address: Address) -> str:
    identity = report.experiments[-1].experiment_id
    page = address("experiments", identity)
    results = results_page(identity, report.results, report.sentences, page=page)
    return f"{results}\n\n{worst_part(report.worst)}" if report.worst else results


def results_page(
    reference: str,
    results: Sequence[Result],
    summary: Sequence[str],
    links: Sequence[str] = (),
    page: str | None = None,
) -> str:
    """Return the page of experiments: a summary, a table of every metric and system, and `links` in Markdown.

    `reference` means them in the shell, and `page` is their address in the dashboard.
    """
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
        where_shown(f"evalflows show {reference}", page),
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


def worst_part(worst: Worst) -> str:
    """Return the worst examples, and the command that lists all of them."""
    parts = [part for examples in worst.examples for part in _worst_examples(examples)]
    return "\n\n".join([*parts, f"All of them: {code(worst.command)}"])


def _worst_examples(examples: WorstExamples) -> Iterator[str]:
    compared = examples.baseline is not None
    yield f"### {escaped(examples.heading)}"
    for item in examples.items:
        values = item_values(item, examples.metric, compared=compared)
        texts = [("question", plain_text(item.inputs)), *item_texts(item, compared=compared)]
        lines = [f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in texts]
        yield "\n".join([f"**{escaped(item.example_id)}** {escaped(values)}", "", *lines])


def decisions_page(decisions: Sequence[Decision], address: Address = nowhere) -> str:
    """Return the page of decisions: each with its rule results, and what limits it."""
    parts = []
    for decision in decisions:
        rules = [(rule["outcome"], rule["rule"].replace("_", " "), rule["text"]) for rule in decision.rules]
        table = markdown_table(("", "rule", ""), rules)
        limits = "\n".join(f"- {escaped(one)}" for one in decision.what_limits)
        limits = f"**Limits of this decision**\n\n{limits}" if limits else ""
        heading = f"## {escaped(decision.conclusion)}\n\n{escaped(decision.title)}"
        shown = where_shown(f"evalflows explain {decision.decision_id}", address("decisions", decision.decision_id))
        parts.append("\n\n".join(part for part in (heading, table, limits, shown) if part))
    return "\n\n".join(parts)


def comparison_page(report: ComparisonReport, address: Address = nowhere) -> str:
    """Return the page of a comparison: its summary, win rates, ranking, judge biases, and the command for more."""
    rates = [
        (
            *(rate.metric, rate.candidate, rate.baseline, rate.what, rate.rate_text),
            *(rate.p_text, rate.p_adjusted_text, rate.verdict_text, *rate.counts),
        )
        for rate in report.win_rates
    ]
    identity = report.overview.comparison_id
    ranking = [(row.metric, row.rank_text, row.experiment, row.rating_text, row.rate_text) for row in report.ranking]
    head = ("metric", "candidate", "baseline", "", "win rate", "p", "p adjusted", "verdict", "wins", "ties", "losses")
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in report.sentences),
        markdown_table((*head, "missing"), rates),
        markdown_table(("metric", "rank", "experiment", "rating", "win rate over all"), ranking),
        "\n".join(f"- {escaped(bias.text)}" for bias in report.known_biases),
        where_shown(f"evalflows show {identity}", address("pairwise", identity)),
    ]
    return "\n\n".join(part for part in parts if part)
