"""Incidents of production, and the looks of watch rules at windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from evalflows.specs.errors import InputError, NotFoundError
from evalflows.store.catalog import ask, ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import EstimateRow, derived_id, new_id
from evalflows.store.schemas import to_rows
from evalflows.store.trace_records import AlertRow, WatchedWindowRow

IncidentState = Literal["open", "acknowledged", "recovered", "closed"]
ENDED: tuple[IncidentState, ...] = ("recovered", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident: its alarm, its state, and how it ended."""

    incident_id: str
    name: str
    rule: str
    kind: str
    metric: str
    slice: str
    state: IncidentState
    window_start: datetime  # of the alarm, like the next fields
    window_end: datetime
    since: datetime | None
    n: int | None
    missing: int | None
    value: float | None
    ci_low: float | None
    ci_high: float | None
    confidence_level: float | None
    reference: float | None
    evidence: float | None
    text: str
    alarmed_at: datetime
    acknowledged_by: str | None
    note: str | None
    ended_at: datetime | None
    ended: str | None
    ended_code: ReasonCode | None
    ended_window_end: datetime | None
    evaluation_id: str
    evaluator_version: str | None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED


def incidents(store: Store, name: str | None = None) -> list[Incident]:
    """Return the incidents of a trace evaluation, or of all, those that alarmed last first."""
    columns = ", ".join(Incident.__slots__)
    query = f"""select {columns} from incidents where $1 is null or name = $1
                order by window_end desc, alarmed_at desc, incident_id"""
    (rows,) = ask(store, (query, [name]))
    return [Incident(**dict(zip(Incident.__slots__, row, strict=True))) for row in rows]


def find_incident(store: Store, reference: str) -> Incident:
    """Return the incident of an id, or of the only id with this prefix. Raise InputError for none, or several."""
    found = [incident for incident in incidents(store) if incident.incident_id.startswith(reference)]
    if len(found) == 1 or (found and found[0].incident_id == reference):
        return found[0]
    if found:
        raise InputError(f"incident {reference!r}: got the prefix of {len(found)} ids, wanted a longer one")
    raise NotFoundError(f"incident {reference!r}: not in {store.layout.root}, wanted an id of `evalflows alerts ls`")


def events_of(store: Store, incident_id: str) -> list[AlertRow]:
    """Return the events of an incident, in order of time."""
    rows: list[AlertRow] = store.read("alerts", incident_id)
    return sorted(rows, key=lambda row: row.recorded_at)


def write_event(store: Store, row: AlertRow) -> None:
    """Write one event of an incident. Events are never rewritten, so any process may write one at any time."""
    store.append("alerts", row.incident_id, new_id("part"), [row])


def event_id(incident_id: str, event: str) -> str:
    return derived_id("alert", incident_id, event)


def looks_since(store: Store, evaluation_id: str, since: datetime) -> list[WatchedWindowRow]:
    """Return the looks at an evaluation's windows since a moment, in order of time."""
    query = """select * from source.watched_windows
               where starts_with(period, ?) and right(period, 7) >= ? and window_start >= ?"""
    data = ask_arrow(store, query, [f"{evaluation_id}-", f"{since:%Y-%m}", since])
    rows: list[WatchedWindowRow] = to_rows("watched_windows", data)
    return sorted(rows, key=lambda row: (row.window_start, row.slice))


def write_looks(store: Store, rows: Sequence[WatchedWindowRow]) -> None:
    """Write looks at windows, by month. Only the holder of the evaluation's lease may."""
    for period in sorted({row.period for row in rows}):
        store.reopen(period, ["watched_windows"])
        store.append("watched_windows", period, new_id("part"), [row for row in rows if row.period == period])
        store.seal(period, ["watched_windows"])


def experiment_mean(store: Store, experiment_id: str, metric: str) -> list[EstimateRow]:
    """Return the mean of a metric over all examples of an experiment, one for each version of its evaluator."""
    query = "select * from source.estimates where experiment_id = ? and metric = ? and slice is null"
    rows: list[EstimateRow] = to_rows("estimates", ask_arrow(store, query, [experiment_id, metric]))
    return rows


def watched_until(store: Store, evaluation_id: str) -> datetime | None:
    """Return the moment up to which an evaluation's scheduled batches judged all that was recorded."""
    query = """select until from source.watermarks
               where evaluation_id = ? and kind = 'schedule' and until is not null order by recorded_at desc limit 1"""
    found = store.query(query, [evaluation_id])
    return found[0][0] if found else None
