"""Facts that are kept as a check of their own, with the id by which they are found again."""

from evalflows.store.records import CheckRow, Json, SubjectKind
from evalflows.store.store import Store


def keep_check(
    store: Store,
    identity: str,
    name: str,
    subject: tuple[SubjectKind, str],
    message: str | None,
    observed: Json | None = None,
    *,
    passed: bool | None = None,
) -> None:
    """Publish a check that is a batch of its own, a warning if it has not passed."""
    kind, subject_id = subject
    row = CheckRow(
        check_id=identity,
        batch_id=identity,
        subject_kind=kind,
        subject_id=subject_id,
        name=name,
        passed=passed,
        severity="warning",
        observed=observed,
        message=message,
    )
    store.publish("checks", identity, [row])
