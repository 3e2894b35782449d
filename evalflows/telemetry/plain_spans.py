"""Spans as OpenTelemetry's console exporter for Python prints them, and as Phoenix exports them: a JSON object each."""

import re
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.store.observations import day_of, split_attributes
from evalflows.store.records import to_json
from evalflows.store.trace_records import ObservationRow, SpanStatus
from evalflows.telemetry.feedback import Telemetry, add_results_of_span
from evalflows.telemetry.ids_and_times import moment_of
from evalflows.telemetry.otlp import hexadecimal

STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error"}
PREFIX = "attributes."
"""How Phoenix's data frames name the columns of attributes."""


def is_span(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields that a span has in either form."""
    return _field(record, "context.trace_id") is not None and "start_time" in record


def telemetry_of_span(record: Any) -> Telemetry:
    """Return the observation of a span. Raise InputError if it is none."""
    if not isinstance(record, dict) or not is_span(record):
        got = ", ".join(list(record)[:5]) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"got {short(got)}, wanted a span with its context and start_time")
    started_at = moment_of(record["start_time"], "start_time")
    if started_at is None:
        raise InputError("got no start_time, wanted a time")
    attributes, contents = split_attributes(_attributes(record))
    parent, code = record.get("parent_id"), _field(record, "status.status_code") or record.get("status_code")
    row = ObservationRow(
        trace_id=_identity(record, "context.trace_id", 32),
        span_id=_identity(record, "context.span_id", 16),
        parent_id=_identity(record, "parent_id", 16) if parent else None,
        day=day_of(started_at),
        source="otlp",
        name=str(record.get("name") or "span"),
        kind=str(record["kind"]).rpartition(".")[2].lower() if record.get("kind") else None,
        started_at=started_at,
        ended_at=moment_of(record.get("end_time"), "end_time"),
        status=STATUSES.get(str(code), "unset"),
        status_message=_field(record, "status.description") or record.get("status_message") or None,
        resource=to_json(resource, mend=True) if (resource := _field(record, "resource.attributes")) else None,
        attributes=attributes,
        contents=contents,
        events=_events(record.get("events")),
    )
    parsed = Telemetry(observations=[row])
    add_results_of_span(parsed, row)
    return parsed


def _field(record: Mapping[str, Any], path: str) -> Any:
    """Return a field under its path, or within the object that the path begins with; None if there is none."""
    name, _, inner = path.partition(".")
    outer = record.get(name)
    return outer.get(inner) if isinstance(outer, Mapping) else record.get(path)


def _identity(record: Mapping[str, Any], path: str, digits: int) -> str:
    given = _field(record, path) if "." in path else record.get(path)
    text = hexadecimal(str(given)).lower()
    if not re.fullmatch(rf"[\da-f]{{{digits}}}", text) or not text.strip("0"):
        raise InputError(f"{path}: got {short(given)}, wanted {digits} hexadecimal digits")
    return text


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {name.removeprefix(PREFIX): value for name, value in record.items() if name.startswith(PREFIX)}
    attributes |= record.get("attributes") or {}
    if kind := record.get("span_kind"):
        attributes.setdefault("openinference.span.kind", kind)
    return {name: value for name, value in attributes.items() if value is not None}


def _events(events: Any) -> str | None:
    found = [
        {
            "name": str(event.get("name")),
            "at": str(event["timestamp"]) if event.get("timestamp") else None,
            "attributes": event.get("attributes") or {},
        }
        for event in (events if isinstance(events, list) else ())
        if isinstance(event, Mapping)
    ]
    return to_json(found, mend=True) if found else None
