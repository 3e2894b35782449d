"""Facts that are kept as a check of their own, reports among them, with the id by which they are found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from evalflows.specs.errors import InputError
from evalflows.store.records import CheckRow, Json, SubjectKind, from_json, new_id, to_json
from evalflows.store.store import Store

Kind = Literal["plan", "backtest"]

QUARANTINE = "quarantine"
"""The name of the check that keeps what of an experiment is in quarantine, a line for each entry."""

SUBJECTS: Mapping[Kind, SubjectKind] = {"plan": "spec", "backtest": "gate"}
"""What a report of each kind is about."""


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


def keep_report(store: Store, kind: Kind, subject: str, document: Mapping[str, Any], message: str) -> str:
    """Store a report and return its id, such as `plan-01m8…`.

    Args:
        store: The store.
        kind: What it is.
        subject: The name of the spec or the gate.
        document: All figures, as values of JSON.
        message: The report in words.
    """
    identity = new_id(kind)
    keep_check(store, identity, kind, (SUBJECTS[kind], subject), message, to_json(document, mend=True))
    return identity


def is_report(reference: str) -> bool:
    """Return whether a reference may mean a kept report: an id, or the beginning of one."""
    return reference.startswith(tuple(f"{kind}-" for kind in SUBJECTS))


def find_report(store: Store, reference: str) -> tuple[Kind, str, dict[str, Any]] | None:
    """Return the kind, id and document of the report with this id or unique prefix; None if there is none.

    Raise InputError if several ids begin with it.
    """
    query = """select batch_id from source.checks where starts_with(batch_id, ?) and batch_id = check_id
               and list_contains(['plan', 'backtest'], name)"""
    found = [identity for (identity,) in store.query(query, [reference])]
    if len(found) > 1:
        raise InputError(f"report {reference!r}: got the prefix of {len(found)} ids, wanted a longer one")
    if not found:
        return None
    (row,) = store.read("checks", found[0])
    return row.name, row.batch_id, from_json(row.observed)
