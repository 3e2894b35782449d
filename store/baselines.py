"""Approved baselines: which experiment a name stands for now, and stood for before."""

from dataclasses import dataclass
from datetime import datetime

from store.catalog import ask
from store.parquet import Store
from store.records import BaselineRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One approval; it holds until the next one under its name."""

    name: str
    experiment_id: str
    experiment: str | None  # None where it is not in the store
    approved_by: str | None
    reason: str | None
    recorded_at: datetime
    holds: bool


def approved(store: Store, name: str) -> BaselineRow | None:
    """The newest approval under a name."""
    query = """select baseline_id from source.baselines
               where name = ? order by recorded_at desc, baseline_id desc limit 1"""
    found = store.query(query, [name])
    if not found:
        return None
    row: BaselineRow = store.read("baselines", found[0][0])[0]
    return row


def approvals(store: Store) -> list[Approval]:
    """All of them, by name, the newest first."""
    columns = ", ".join(Approval.__slots__)
    (rows,) = ask(store, (f"select {columns} from approvals order by name, recorded_at desc, baseline_id desc", []))
    return [Approval(**dict(zip(Approval.__slots__, row, strict=True))) for row in rows]
