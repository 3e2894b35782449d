"""Data validation of what comes out: Great Expectations checks outputs and scores before anything is concluded."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.execution.data_checks.results import check_results as checks_of_results
from evalflows.reports.data_checks import checks_page, failed, first_of
from evalflows.specs.errors import IncompleteError
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow
from evalflows.tasks.start_columns import flow_run_id


@task(cache_policy=NO_CACHE, persist_result=False)
def check_results(rows: list[ExperimentRow]) -> None:
    """Check the results of those experiments that are complete, and publish the checks and an artifact of them.

    Raise IncompleteError if an expectation of severity error does not hold, or the process that checks them failed.
    """
    store = Store()
    ended: list[ExperimentRow] = [store.read("experiments", row.experiment_id)[0] for row in rows]
    complete = [row for row in ended if row.state == "completed"]
    checks = checks_of_results(store, complete, flow_run_id())
    pages = [checks_page("Experiment", identity, of_one) for identity, of_one in checks.items()]
    create_markdown_artifact(key="result-checks", markdown="\n\n".join(pages), description="Checks of the results")
    for row in complete:
        if errors := failed(checks[row.experiment_id]):
            raise IncompleteError(f"experiment {row.name!r} ({row.experiment_id}): {first_of(errors)}", [*checks])
