"""What a person sees at the end of a comparison in Prefect's UI: one page."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from store.comparison_report import ComparisonReport, comparison_report
from store.parquet import Store
from store.records import ComparisonSetRow
from tasks.publish import escaped, markdown_table


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_comparison(row: ComparisonSetRow) -> str:
    """Keep the report as a markdown artifact called `comparison`. Returns the comparison's id."""
    page = markdown(comparison_report(Store(), row.comparison_id))
    create_markdown_artifact(key="comparison", markdown=page, description=f"Comparison {row.name}")
    return row.comparison_id


def markdown(report: ComparisonReport) -> str:
    """The page: what is to be said, who wins, who stands where, what the judges go by, and where to look on."""
    rates = [
        (
            *(one.metric, one.candidate, one.baseline, one.what, one.rate_text),
            *(one.p_text, one.p_adjusted_text, one.verdict_text, *one.counts),
        )
        for one in report.win_rates
    ]
    standings = [
        (one.metric, str(one.rank or "-"), one.experiment, one.rating_text, one.rate_text) for one in report.standings
    ]
    head = ("metric", "candidate", "baseline", "", "win rate", "p", "p adjusted", "verdict", "wins", "ties", "losses")
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in report.sentences),
        markdown_table((*head, "missing"), rates),
        markdown_table(("metric", "rank", "experiment", "rating", "win rate over all"), standings),
        "\n".join(f"- {escaped(one.text)}" for one in report.known_habits),
        f"In the shell: `evalflows show {report.overview.comparison_id}`",
    ]
    return "\n\n".join(part for part in parts if part)
