"""Data validation: Great Expectations checks the snapshot before anything is paid."""

from collections.abc import Sequence
from dataclasses import replace

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.execution.data_checks.process import checks_of
from evalflows.execution.data_checks.request import CheckRequest
from evalflows.reports.markdown import code, escaped
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
    markdown = _markdown(rows, request.snapshot)
    create_markdown_artifact(key="dataset-checks", markdown=markdown, description="Dataset checks")
    failed = [row for row in rows if row.severity == "error" and not row.passed]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise InputError(f"dataset {spec.dataset.name or request.snapshot!r}: {failed[0].message}{more}")
    return request.batch


def _markdown(rows: Sequence[CheckRow], snapshot: str) -> str:
    marks = {True: "ok", False: "**failed**", None: "**not checked**"}
    lines = [f"| {marks[row.passed]} | {row.severity} | {escaped(row.message or '')} |" for row in rows]
    return "\n".join([f"Snapshot {code(snapshot)}", "", "| | severity | check |", "|---|---|---|", *lines])
