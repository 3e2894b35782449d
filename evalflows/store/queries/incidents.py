"""Incidents: windows of production in which a metric was worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from evalflows.specs import hints
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.watch import ALL
from evalflows.store.observations import day_of
from evalflows.store.queries.windows import in_slice
from evalflows.store.records import EstimateRow, ReasonCode, derived_id, new_id
from evalflows.store.schemas import to_rows
from evalflows.store.sql import ask_arrow, ask_records, fields_of
from evalflows.store.store import Store
from evalflows.store.trace_records import AlertRow, WatchedWindowRow
from evalflows.store.views import view_text

IncidentState = Literal["open", "acknowledged", "recovered", "closed"]
STATES: tuple[IncidentState, ...] = ("open", "acknowledged", "recovered", "closed")
ENDED = STATES[2:]
NEVER = datetime.max.replace(tzinfo=UTC)

RESOLUTION = timedelta(microseconds=1)


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

    @property
    def began(self) -> datetime:
        """When it began: as the change detector estimates, else the window of the alarm."""
        return self.since or self.window_start

    @property
    def cause(self) -> tuple[str, str, bool]:
        """What incidents of one cause share: the evaluation, the metric, and whether judgements failed."""
        return self.name, self.metric, self.kind == "failure_share"


@dataclass(frozen=True, slots=True)
class Episode:
    """Incidents of one cause that began before the others were over: one event that several rules or slices found.

    The first one began first, and is of all traces rather than of a slice.
    """

    incidents: Sequence[Incident]

    @property
    def first(self) -> Incident:
        return self.incidents[0]

    @property
    def state(self) -> IncidentState:
        """The state that asks most of people."""
        return min((incident.state for incident in self.incidents), key=STATES.index)

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def acknowledged(self) -> list[Incident]:
        """The incidents that a person has acknowledged."""
        return [incident for incident in self.incidents if incident.acknowledged_by]

    @property
    def acknowledged_by(self) -> str | None:
        return next((incident.acknowledged_by for incident in self.acknowledged), None)


def episodes(found: Iterable[Incident]) -> list[Episode]:
    """Return incidents by episode, the last one first."""
    together: list[list[Incident]] = []
    last: dict[tuple[str, str, bool], tuple[list[Incident], datetime]] = {}  # by cause, and when it is over
    for incident in sorted(found, key=lambda i: (i.began, i.slice != ALL, i.alarmed_at, i.incident_id)):
        end = (incident.ended_window_end or incident.window_end) if incident.is_over else NEVER
        members, until = last.get(incident.cause, ([], incident.began))
        if not members or incident.began > until:
            members, until = [], end
            together.append(members)
        members.append(incident)
        last[incident.cause] = members, max(until, end)
    return [Episode(members) for members in reversed(together)]


def episode_of(store: Store, incident: Incident) -> Episode:
    """Return the episode of an incident."""
    all_of_it = episodes(incidents(store, incident.name))
    return next(group for group in all_of_it if any(i.incident_id == incident.incident_id for i in group.incidents))


def incidents(store: Store, name: str | None = None) -> list[Incident]:
    """Return the incidents of a trace evaluation, or of all, those that alarmed last first."""
    query = f"""select {fields_of(Incident)} from incidents where $1 is null or name = $1
                order by window_end desc, alarmed_at desc, incident_id"""
    return ask_records(store, Incident, query, [name])


def find_incident(store: Store, reference: str) -> Incident:
    """Return the incident of an id, or of the only id with this prefix. Raise InputError for none, or several."""
    found = [incident for incident in incidents(store) if incident.incident_id.startswith(reference)]
    if len(found) == 1 or (found and found[0].incident_id == reference):
        return found[0]
    if found:
        raise InputError(f"incident {reference!r}: got the prefix of {len(found)} ids, wanted a longer one")
    wanted = f"wanted an id of {hints.list_alerts().code}"
    raise NotFoundError(f"incident {reference!r}: not in {store.layout.root}, {wanted}")


def events_of(store: Store, incident_id: str) -> list[AlertRow]:
    """Return the events of an incident, in order of time."""
    rows: list[AlertRow] = store.read("alerts", incident_id)
    return sorted(rows, key=lambda row: row.recorded_at)


def write_event(store: Store, row: AlertRow) -> None:
    """Write one event of an incident. Events are never rewritten, so any process may write one at any time."""
    store.append("alerts", row.incident_id, new_id("part"), [row])


def event_id(incident_id: str, event: str) -> str:
    return derived_id("alert", incident_id, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredItem:
    """An item of production with its score and what the evaluator said."""

    subject_kind: str
    subject_id: str
    trace_id: str | None  # None for a session
    value: float
    comment: str | None
    input: str | None  # JSON, of the trace
    output: str | None


def worst_items(store: Store, incident: Incident, most: int) -> list[ScoredItem]:
    """Return the items in the window of an alarm whose scores lie farthest on the side of the alarm."""
    order = "asc" if incident.reference is None or (incident.value or 0) <= incident.reference else "desc"
    of_slice = in_slice(incident.slice)
    among = f"and subject_id in (select trace_id from traces where {of_slice})" if of_slice else ""
    query = f"""with {_traces_between("$6", "$7")}, worst as (
                    select subject_kind, subject_id, value, comment, subject_at,
                           case when subject_kind <> 'session' then split_part(subject_id, '/', 1) end as trace_id
                    from scores
                    where is_one_of(experiment_id, $1) and metric = $2 and status = 'scored' and value is not null
                      and subject_at >= $3 and subject_at < $4 {among}
                    order by value {order}, subject_at desc, subject_id limit $5
                )
                select subject_kind, subject_id, w.trace_id, value, comment, t.input, t.output
                from worst w left join (
                    select * from traces where trace_id in (select trace_id from worst)
                ) t on t.trace_id = w.trace_id
                order by value {order}, subject_at desc, subject_id"""
    start, end = incident.window_start, incident.window_end
    owners = sorted({f"{incident.evaluation_id}-{day_of(moment)}" for moment in (start, end - RESOLUTION)})
    days = [day_of(start - timedelta(days=1)), day_of(end)]
    return ask_records(store, ScoredItem, query, [owners, incident.metric, start, end, most, *days])


def _traces_between(first: str, last: str) -> str:
    """SQL for the observations of some days, and the traces that they make: of all days, it would take seconds."""
    return f"""observations as (select * from staging.observations where day between {first} and {last}),
               traces as ({view_text("traces")})"""


def versions_since(store: Store, since: datetime) -> list[tuple[datetime, str]]:
    """Return when each version of the application that began after a moment was first seen, in order of time."""
    query = """select min(started_at), attribute_version(source, attributes, contents, resource, events) as version
               from source.observations where day >= $1 and version is not null
               group by version having min(started_at) >= $2 order by 1"""  # of the view, every field would be found
    rows: list[tuple[datetime, str]] = store.query(query, [day_of(since), since])
    return rows


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
