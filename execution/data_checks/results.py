"""The checks of finished experiments' results: made once, and again after an experiment was resumed."""

from collections.abc import Sequence
from dataclasses import replace

from evalflows.execution.data_checks.process import checks_of
from evalflows.execution.data_checks.request import CheckRequest, ResultRequest, batch_of_results
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow, ExperimentRow


def finished(store: Store, experiment_id: str) -> ExperimentRow:
    """Return the row of a finished experiment. Raise InputError if it is not."""
    row: ExperimentRow
    (row,) = store.read("experiments", experiment_id)
    if row.state != "completed":
        raise InputError(
            f"experiment {row.name!r} ({row.experiment_id}): got one that is not finished, wanted a finished one; "
            f"`evalflows resume {row.experiment_id}` continues"
        )
    return row


def check_results(
    store: Store, experiments: Sequence[ExperimentRow], flow_run_id: str | None = None
) -> dict[str, list[CheckRow]]:
    """Check the results of finished experiments, publish the checks that are new, and return all, by experiment.

    Those that do not hold come first. Raise IncompleteError if the process that checks them failed.
    """
    batches = {row.experiment_id: batch_of_results(row) for row in experiments}
    new = {identity: batch for identity, batch in batches.items() if not store.is_sealed("checks", batch)}
    if new:
        made = checks_of(ResultRequest(root=store.layout.root, batches=new))
        for batch in new.values():
            of_one = [replace(check, flow_run_id=flow_run_id) for check in made if check.batch_id == batch]
            store.publish("checks", batch, of_one)
    return {identity: _sorted(store.read("checks", batch)) for identity, batch in batches.items()}


def snapshot_checks(store: Store, snapshot: str) -> str:
    """Return the newest batch of checks of a snapshot; without any, check it by our expectations."""
    query = """select batch_id from source.checks where subject_kind = 'snapshot' and subject_id = ?
               order by recorded_at desc, batch_id limit 1"""
    if found := store.query(query, [snapshot]):
        return str(found[0][0])
    request = CheckRequest(root=store.layout.root, snapshot=snapshot, own=[])
    store.publish("checks", request.batch, checks_of(request))
    return request.batch


def _sorted(checks: Sequence[CheckRow]) -> list[CheckRow]:
    return sorted(checks, key=lambda row: (row.passed is True, row.severity, row.column_name or "", row.name))
