"""Review whether the weights of a composite still order answers as people, or users, do."""

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.calibration import calibrate_by_labels, calibration_check
from evalflows.specs.escaping import print_note
from evalflows.store.store import Store


@task(cache_policy=NO_CACHE, persist_result=False)
def weights_by_labels(experiment: str, labels: str, composite: str | None) -> str:
    """Compare declared weights with those that labels say, and publish a check and the artifact `weights`.

    Return what the check says, which is printed too if the declared weights do not hold.
    """
    store = Store()
    found = calibrate_by_labels(store, experiment, composite, labels)
    check = calibration_check(found, labels)
    store.publish("checks", check.batch_id, [check])
    rows = [
        {"metric": one.metric, "declared": one.declared, "by labels": one.weight, "low": one.low, "high": one.high}
        for one in found.metrics
    ]
    create_table_artifact(key="weights", table=rows, description=f"Weights of a composite by labels: {check.message}")
    if check.passed is False:
        print_note(check.message or "")
    return check.message or ""
