"""The results page of a flow run in Prefect's UI."""

from collections.abc import Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings

from evalflows.pages.links import Links
from evalflows.reports.markdown import code, escaped
from evalflows.reports.markdown_pages import results_page
from evalflows.reports.result_sentences import sentences
from evalflows.reports.results import results_of
from evalflows.store.packing import pack_many
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow
from evalflows.tasks.dashboard import links_to_dashboard


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_results(rows: list[ExperimentRow]) -> str:
    """Publish the results as the markdown artifact `result`, and return the run group. Pack a store of many files."""
    store = Store()
    results, dashboard = results_of(store, [row.experiment_id for row in rows]), links_to_dashboard(store)
    page = dashboard.experiment(rows[-1].experiment_id)
    text = results_page(rows[0].run_group, results, sentences(results), _links(rows, dashboard), page)
    create_markdown_artifact(key="result", markdown=text, description=f"Results of {escaped(rows[0].name)}")
    pack_many(store)
    return rows[0].run_group


def _links(rows: Sequence[ExperimentRow], dashboard: Links) -> list[str]:
    context, ui = FlowRunContext.get(), get_current_settings().ui_url
    links = [f"experiment {_linked(row, dashboard)} ({escaped(row.target)})" for row in rows]
    links.append(f"snapshot {code(rows[0].snapshot_id)} of {escaped(rows[0].dataset_name or 'unnamed rows')}")
    if ui and context and context.flow_run:
        links.append(f"[this run]({ui}/runs/flow-run/{context.flow_run.id})")
    return links


def _linked(row: ExperimentRow, dashboard: Links) -> str:
    address = dashboard.experiment(row.experiment_id)
    return code(row.experiment_id) if address is None else f"[{code(row.experiment_id)}]({address})"
