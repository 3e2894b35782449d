"""Incidents: the events that begin and end them, and what a person says of them."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from evalflows.analysis.monitoring.estimates import alarm_threshold
from evalflows.analysis.monitoring.stream import Span, Stream
from evalflows.analysis.monitoring.wording import alarm_text, closed_text, recovered_text
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.incidents import Incident, event_id, write_event
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import dependent_id
from evalflows.store.trace_records import AlertRow, WatchedWindowRow

_OF_LOOK = (
    *("evaluation_id", "rule", "kind", "metric", "slice", "evaluator_version", "window_start", "window_end", "since"),
    *("n", "missing", "value", "ci_low", "ci_high", "confidence_level", "reference", "evidence"),
)
_OF_INCIDENT = ("evaluation_id", "name", "rule", "kind", "metric", "slice", "evaluator_version", "reference")


def alarm(name: str, stream: Stream, look: WatchedWindowRow, slices: int) -> AlertRow:
    """Return the alarm of a look. Its incident's id follows from what was looked at."""
    origin = (look.evaluation_id, look.rule, look.slice, look.evaluator_version, look.window_start.isoformat())
    identity = dependent_id("incident", look.window_end, *origin)
    threshold = alarm_threshold(stream.rule.window, slices)
    return AlertRow(
        event_id=event_id(identity, "alarm"),
        incident_id=identity,
        name=name,
        event="alarm",
        text=alarm_text(stream.rule, look, margin=stream.margin, threshold=threshold),
        **_taken(look, _OF_LOOK),
    )


def incident_of(event: AlertRow) -> Incident:
    """Return the incident that an alarm begins."""
    assert event.window_start is not None and event.window_end is not None
    names = {one.name for one in fields(Incident)} & {one.name for one in fields(AlertRow)}
    given: dict[str, Any] = {one.name: None for one in fields(Incident)}
    given |= {name: getattr(event, name) for name in names}
    return Incident(**given | {"state": "open", "alarmed_at": event.recorded_at})


def recovered(incident: Incident, look: WatchedWindowRow) -> AlertRow:
    """Return the event with which an incident has recovered."""
    return AlertRow(
        event_id=event_id(incident.incident_id, "recovered"),
        incident_id=incident.incident_id,
        name=incident.name,
        event="recovered",
        text=recovered_text(look),
        **(_taken(look, _OF_LOOK) | {"reference": incident.reference, "since": incident.since, "evidence": None}),
    )


def follow(name: str, stream: Stream, slices: int) -> AlertRow | None:
    """Begin an incident if the last look of a stream raised one, or end the one that has recovered."""
    look = stream.looks[-1]
    if stream.incident is None:
        if look.outcome != "violated":
            return None
        event = alarm(name, stream, look, slices)
        stream.incident = incident_of(event)
        return event
    if not stream.has_recovered():
        return None
    incident = stream.incident
    stream.restart(Span(incident.since or incident.window_start, look.window_end))
    stream.incident = None
    return recovered(incident, look)


def closed(
    incident: Incident, code: ReasonCode, why: str, *, until: datetime | None, by: str | None = None
) -> AlertRow:
    """Return the event with which an incident ends without a recovery."""
    return AlertRow(
        event_id=event_id(incident.incident_id, "closed"),
        incident_id=incident.incident_id,
        event="closed",
        window_end=until,
        text=closed_text(incident.metric, incident.slice, why),
        reason_code=code,
        acknowledged_by=by,
        **_taken(incident, _OF_INCIDENT),
    )


def acknowledge(store: Store, incident: Incident, *, by: str, note: str | None = None, close: bool = False) -> AlertRow:
    """Write that a person acknowledged an incident, or closes it. Raise InputError if it is over."""
    if incident.is_over:
        raise InputError(
            f"incident {incident.incident_id}: got one that is {incident.state}, wanted one that is not over"
        )
    if close:
        row = closed(incident, "closed_by_person", f"by {by}" + (f": {note}" if note else ""), until=None, by=by)
    else:
        row = AlertRow(
            event_id=event_id(incident.incident_id, "acknowledged"),
            incident_id=incident.incident_id,
            event="acknowledged",
            text=f"acknowledged by {by}" + (f": {note}" if note else ""),
            acknowledged_by=by,
            note=note,
            **_taken(incident, _OF_INCIDENT),
        )
    write_event(store, row)
    return row


def _taken(origin: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(origin, name) for name in names}
