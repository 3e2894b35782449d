"""The results page of a comparison in Prefect's UI."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.reports.comparison import comparison_report
from evalflows.reports.markdown import escaped
from evalflows.reports.markdown_pages import comparison_page
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonSetRow
from evalflows.tasks.dashboard import links_to_dashboard


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_comparison(row: ComparisonSetRow) -> str:
    """Publish the report as the markdown artifact `comparison`, and return the comparison's id."""
    store = Store()
    page = comparison_page(comparison_report(store, row.comparison_id), links_to_dashboard(store).page)
    create_markdown_artifact(key="comparison", markdown=page, description=f"Comparison {escaped(row.name)}")
    return row.comparison_id
