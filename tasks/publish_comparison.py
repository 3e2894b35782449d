"""The results page of a comparison in Prefect's UI."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.reports.markdown import code, escaped, markdown_table
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonSetRow


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_comparison(row: ComparisonSetRow) -> str:
    """Publish the report as the markdown artifact `comparison`, and return the comparison's id."""
    page = markdown(comparison_report(Store(), row.comparison_id))
    create_markdown_artifact(key="comparison", markdown=page, description=f"Comparison {escaped(row.name)}")
    return row.comparison_id


def markdown(report: ComparisonReport) -> str:
    """Return the page: summary sentences, win rates, ranking, judge biases, and the command for more."""
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
