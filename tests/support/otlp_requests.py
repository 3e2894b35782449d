"""Requests of OpenTelemetry's protocol, made from plain values."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = 1_767_225_600_000_000_000
"""2026-01-01 in ns."""


def pair(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=any_value(value))


def any_value(value: Any) -> AnyValue:
    made = AnyValue()
    match value:
        case bool():
            made.bool_value = value
        case str():
            made.string_value = value
        case int():
            made.int_value = value
        case float():
            made.double_value = value
        case bytes():
            made.bytes_value = value
        case list():
            made.array_value.values.extend(any_value(item) for item in value)
        case dict():
            made.kvlist_value.values.extend(pair(key, item) for key, item in value.items())
    return made


def span(
    name: str = "chat",
    *,
    trace_id: str = TRACE,
    span_id: str = SPAN,
    parent_id: str = "",
    attributes: Mapping[str, Any] | None = None,
    events: Mapping[str, Mapping[str, Any]] | None = None,
    start: int = START,
    end: int = START + 1_500_000_000,
    kind: int = 3,
    code: int = 0,
) -> dict[str, Any]:
    """The fields of a span, as the protobuf message takes them."""
    return {
        "name": name,
        "trace_id": bytes.fromhex(trace_id),
        "span_id": bytes.fromhex(span_id),
        "parent_span_id": bytes.fromhex(parent_id),
        "start_time_unix_nano": start,
        "end_time_unix_nano": end,
        "kind": kind,
        "status": {"code": code},
        "attributes": [pair(key, value) for key, value in (attributes or {}).items()],
        "events": [
            {"name": event, "time_unix_nano": start, "attributes": [pair(*item) for item in fields.items()]}
            for event, fields in (events or {}).items()
        ],
    }


def record(
    name: str,
    *,
    trace_id: str = TRACE,
    span_id: str = SPAN,
    attributes: Mapping[str, Any] | None = None,
    body: Any = None,
    at: int = START,
) -> dict[str, Any]:
    """The fields of a log record, as the protobuf message takes them."""
    return {
        "event_name": name,
        "trace_id": bytes.fromhex(trace_id),
        "span_id": bytes.fromhex(span_id),
        "time_unix_nano": at,
        "attributes": [pair(key, value) for key, value in (attributes or {}).items()],
        **({} if body is None else {"body": any_value(body)}),
    }


def traces(*spans: dict[str, Any], resource: Mapping[str, Any] | None = None) -> ExportTraceServiceRequest:
    attributes = [pair(key, value) for key, value in (resource or {}).items()]
    scope = {"scope": {"name": "a library"}, "spans": spans}
    return ExportTraceServiceRequest(resource_spans=[{"resource": {"attributes": attributes}, "scope_spans": [scope]}])


def logs(*records: dict[str, Any]) -> ExportLogsServiceRequest:
    return ExportLogsServiceRequest(resource_logs=[{"scope_logs": [{"log_records": records}]}])


def in_json(request: ExportTraceServiceRequest | ExportLogsServiceRequest) -> bytes:
    """OTLP's JSON, in which ids are hexadecimal, made by the package of OpenTelemetry itself."""
    from opentelemetry.proto_json.collector.logs.v1.logs_service import ExportLogsServiceRequest as JsonLogs
    from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest as JsonTraces

    fields = _fields(request)
    made = JsonTraces if isinstance(request, ExportTraceServiceRequest) else JsonLogs
    return made.from_dict(fields).to_json().encode()


def _fields(message: Any) -> Any:
    import base64

    from google.protobuf import json_format

    def mended(value: Any) -> Any:
        if isinstance(value, list):
            return [mended(item) for item in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {name: base64.b64decode(item).hex() if name in ids else mended(item) for name, item in value.items()}

    return mended(json_format.MessageToDict(message, use_integers_for_enums=True))
