"""Apply rules of retention: erase texts and remove experiments that are too old."""

from prefect import flow

from evalflows.specs.retention import RetentionSpec
from evalflows.tasks.retention import retain_by_rules


@flow(name="apply_retention")
def apply_retention(spec: RetentionSpec) -> dict[str, dict[str, int]]:
    """Erase texts and remove experiments that are older than the rules allow. Return the numbers of rows by table.

    Args:
        spec: The rules.
    """
    return retain_by_rules(spec)
