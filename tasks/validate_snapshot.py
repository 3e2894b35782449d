"""Data validation: Great Expectations checks the snapshot before anything is paid."""

from dataclasses import replace

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.execution.data_checks.process import checks_of
from evalflows.execution.data_checks.request import CheckRequest
from evalflows.reports.data_checks import checks_page, failed, first_of
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow
from evalflows.tasks.start_columns import flow_run_id


@task(cache_policy=NO_CACHE, persist_result=False)
def validate_snapshot(spec: ExperimentSpec) -> str:
    """Check the snapshot, publish the checks and an artifact of them, and return the batch of the checks.

    A snapshot never changes, so each suite runs on it once. Raise InputError if a critical check failed, and
    IncompleteError if the process that checks it did.
    """
    store = Store()
    request = CheckRequest.of(store, spec.dataset)
    if not store.is_sealed("checks", request.batch):
        checks = [replace(check, flow_run_id=flow_run_id()) for check in checks_of(request)]
        store.publish("checks", request.batch, checks)
    rows: list[CheckRow] = sorted(store.read("checks", request.batch), key=lambda row: (row.passed is True, row.name))
    markdown = checks_page("Snapshot", request.snapshot, rows)
    create_markdown_artifact(key="dataset-checks", markdown=markdown, description="Dataset checks")
    if errors := failed(rows):
        raise InputError(f"dataset {spec.dataset.name or request.snapshot!r}: {first_of(errors)}")
    return request.batch
