"""Traces and logs of OpenTelemetry's protocol (OTLP) as rows: every valid span, whatever else is in the request.

Requests are protobuf messages, or those that `parse_json` returns. (protobuf's own JSON parser must not be used: it
reads OTLP's hexadecimal ids as base64, without an error.)
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from evalflows.specs.errors import InputError, describe, short
from evalflows.store.observations import day_of, split_attributes
from evalflows.store.records import Json, derived_id, to_json
from evalflows.store.trace_records import ObservationRow, SpanStatus
from evalflows.telemetry.attribute_values import Attributes, attributes_of, value_of
from evalflows.telemetry.evaluation_results import RESULT, add_results_of_record, add_results_of_span
from evalflows.telemetry.parsed import Telemetry

KINDS = (None, "internal", "server", "client", "producer", "consumer")
STATUSES: tuple[SpanStatus, ...] = ("unset", "ok", "error")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_NS = 2**63 - 1
"""The year 2262; what claims to be later is set back to it."""
GENAI = "gen_ai."
"""How the names of events about model calls begin; other log records are ignored."""
BODY = "body"
"""The attribute under which a log record's body is stored."""
OF_NO_SPAN = b"1" * 8
"""The id of a span in place of that of a result that is about a whole trace."""
TIME = "time_unix_nano"
"""The attribute with a log record's time in ns: records of one model call often share a microsecond."""


def parse_json(text: bytes) -> Any:
    """Return a request in OTLP's JSON, of traces or of logs, with the fields of the protobuf message.

    Raise InputError, in one line, if it is neither.
    """
    try:
        return request_of(orjson.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"not OTLP in JSON: {describe(error)}") from error


def request_of(fields: dict[str, Any]) -> Any:
    """Return a request of traces or of logs from its fields in OTLP's JSON.

    Raise ValueError or TypeError if they are invalid.
    """
    # late: the package takes 40 ms to import
    from opentelemetry.proto_json.collector.logs.v1.logs_service import ExportLogsServiceRequest
    from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest

    message = ExportLogsServiceRequest if "resourceLogs" in fields else ExportTraceServiceRequest
    return message.from_dict(fields)


def rows_of_traces(request: Any) -> Telemetry:
    """Return the observations of an ExportTraceServiceRequest. Spans with invalid ids are rejected, each in a line."""
    parsed = Telemetry()
    for resource_spans in getattr(request, "resource_spans", ()):
        resource = _resource(resource_spans)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name or None if scope_spans.scope else None
            for span in scope_spans.spans:
                if problem := _id_problem(span.trace_id, span.span_id):
                    parsed.rejected.append(_rejection(span, problem))
                else:
                    row = _row_of_span(span, resource, scope)
                    parsed.observations.append(row)
                    add_results_of_span(parsed, row)
    return parsed


def invalid_spans(request: Any) -> tuple[int, list[str]]:
    """Return how many spans a request has, and a line per span that `rows_of_traces` would reject; makes no rows."""
    count, rejected = 0, []
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            count += len(scope_spans.spans)
            for span in scope_spans.spans:
                if problem := _id_problem(span.trace_id, span.span_id):
                    rejected.append(_rejection(span, problem))
    return count, rejected


def rows_of_logs(request: Any) -> Telemetry:
    """Return the GenAI events of an ExportLogsServiceRequest as observations of kind `log`, under their span.

    The result of an evaluation is a score, or a label, of its span or trace. Other log records, and those that belong
    to no span, are counted and ignored.
    """
    parsed = Telemetry()
    for record, resource, scope in _records(request):
        attributes = attributes_of(record.attributes)
        name = getattr(record, "event_name", None) or attributes.get("event.name")
        is_result = name == RESULT
        if not (isinstance(name, str) and name.startswith(GENAI) and record.trace_id and (record.span_id or is_result)):
            parsed.ignored += 1
        elif problem := _id_problem(record.trace_id, record.span_id or OF_NO_SPAN):
            parsed.rejected.append(f"log record {short(name)}: {problem}")
        elif is_result:
            ids = record.trace_id.hex(), record.span_id.hex() or None
            add_results_of_record(parsed, attributes, ids, _at(record), scope)
        else:
            parsed.observations.append(_row_of_record(record, name, attributes, resource, scope))
    return parsed


def _records(request: Any) -> Iterator[tuple[Any, Json | None, str | None]]:
    for resource_logs in getattr(request, "resource_logs", ()):
        resource = _resource(resource_logs)
        for scope_logs in resource_logs.scope_logs:
            scope = scope_logs.scope.name or None if scope_logs.scope else None
            for record in scope_logs.log_records:
                yield record, resource, scope


def _resource(group: Any) -> Json | None:
    attributes = attributes_of(group.resource.attributes) if group.resource else {}
    return to_json(attributes, mend=True) if attributes else None


def _rejection(span: Any, problem: str) -> str:
    return f"span {short(span.name)}: {problem}"


def _id_problem(trace_id: bytes, span_id: bytes) -> str | None:
    for name, value, length in (("trace", trace_id, 16), ("span", span_id, 8)):
        if len(value) != length:
            return f"got {f'a {name} id of {len(value)} bytes' if value else f'no {name} id'}, wanted {length} bytes"
        if not any(value):
            return f"got a {name} id of zeros, wanted a valid one"
    return None


def _row_of_span(span: Any, resource: Json | None, scope: str | None) -> ObservationRow:
    started_at, ended_at = _moment(span.start_time_unix_nano), _moment(span.end_time_unix_nano)
    if started_at is None:  # when it began is not known, and so neither is how long it took
        started_at, ended_at = ended_at or EPOCH, None
    attributes, contents = split_attributes(attributes_of(span.attributes))
    status = span.status
    return ObservationRow(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if any(span.parent_span_id) else None,
        day=day_of(started_at),
        source="otlp",
        name=span.name,
        kind=KINDS[span.kind] if 0 <= span.kind < len(KINDS) else None,
        started_at=started_at,
        ended_at=ended_at,
        status=STATUSES[status.code] if status and 0 <= status.code < len(STATUSES) else "unset",
        status_message=status.message or None if status else None,
        scope=scope,
        resource=resource,
        attributes=attributes,
        contents=contents,
        events=_events(span.events),
        links=_links(span.links),
    )


def _row_of_record(
    record: Any, name: str, attributes: Attributes, resource: Json | None, scope: str | None
) -> ObservationRow:
    at = _at(record)
    body = {} if (content := value_of(record.body)) is None else {BODY: content}
    sent_at = record.time_unix_nano or record.observed_time_unix_nano
    short_ones, contents = split_attributes(attributes | body | {TIME: sent_at})
    trace_id, parent_id = record.trace_id.hex(), record.span_id.hex()
    identity = derived_id(trace_id, parent_id, name, short_ones, contents)
    return ObservationRow(
        trace_id=trace_id,
        span_id=identity[:16],
        parent_id=parent_id,
        day=day_of(at),
        source="otlp",
        name=name,
        kind="log",
        started_at=at,
        scope=scope,
        resource=resource,
        attributes=short_ones,
        contents=contents,
    )


def _at(record: Any) -> datetime:
    return _moment(record.time_unix_nano) or _moment(record.observed_time_unix_nano) or EPOCH


def _moment(nanoseconds: int) -> datetime | None:
    """Return a time in ns since 1970; None for 0, which says that it was not recorded."""
    if not nanoseconds:
        return None
    return EPOCH + timedelta(microseconds=min(max(nanoseconds, 0), LATEST_NS) // 1000)


def _events(events: Any) -> Json | None:
    if not events:
        return None
    return to_json(
        [
            {"name": event.name, "at": _text(event.time_unix_nano), "attributes": attributes_of(event.attributes)}
            for event in events
        ],
        mend=True,
    )


def _links(links: Any) -> Json | None:
    if not links:
        return None
    found = [
        {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attributes": attributes_of(link.attributes)}
        for link in links
    ]
    return to_json(found, mend=True)


def _text(nanoseconds: int) -> str | None:
    return at.isoformat() if (at := _moment(nanoseconds)) else None
