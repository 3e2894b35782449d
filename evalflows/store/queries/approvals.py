"""Approved baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from evalflows.store.records import BaselineRow
from evalflows.store.sql import ask_records, fields_of
from evalflows.store.store import Store

Door = Literal["terminal", "pipe", "python"]
"""Through which a baseline is approved: the command in a terminal, the command without one, or Python."""

DOOR = "approved_through"
"""The name of the check that keeps the door of an approval."""

_DOORS: Mapping[Door, str] = {"terminal": "in a terminal", "pipe": "by a program's command", "python": "in Python"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval, valid until the next one of the same name."""

    baseline_id: str
    name: str
    experiment_id: str
    experiment: str | None  # None if it is not in the store
    approved_by: str | None
    approved_through: Door | None
    started_by: str | None
    reason: str | None
    recorded_at: datetime
    holds: bool

    @property
    def door(self) -> str | None:
        """How it was approved, in words; None if that was not kept."""
        if self.approved_through is None:
            return None
        return f"{_DOORS[self.approved_through]}{f' ({self.started_by})' if self.started_by else ''}"


def approved(store: Store, name: str) -> BaselineRow | None:
    """Return the latest approval of a name; None if there is none.

    Raise StorageError if any approval is damaged: it may be the latest one.
    """
    for damage in store.verify_table("baselines"):
        raise damage.error
    query = """select baseline_id from source.baselines
               where name = ? order by recorded_at desc, baseline_id desc limit 1"""
    latest = store.query(query, [name])
    if not latest:
        return None
    row: BaselineRow = store.read("baselines", latest[0][0])[0]
    return row


def approvals(store: Store, experiments: Sequence[str] | None = None) -> list[Approval]:
    """Return the approvals of experiments, given by id, or all: by name, newest first."""
    query = f"""select {fields_of(Approval)} from approvals
                where $1::varchar[] is null or list_contains($1, experiment_id)
                order by name, recorded_at desc, baseline_id desc"""
    return ask_records(store, Approval, query, [None if experiments is None else list(experiments)])
