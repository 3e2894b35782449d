"""Requests that are small until they are parsed: their elements are counted before."""

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest as Logs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Traces
from otlp_requests import in_json, span, traces

from evalflows.specs.errors import InputError
from evalflows.telemetry import otlp
from evalflows.telemetry.otlp import TooManyElementsError, check_elements_of_json, check_elements_of_protobuf

TRACES, LOGS = Traces.DESCRIPTOR, Logs.DESCRIPTOR


def nested(body: bytes, *fields: int) -> bytes:
    """A message within messages: the field numbers, from the outermost."""
    for field in reversed(fields):
        size, length = len(body), b""
        while size > 127:
            size, length = size >> 7, length + bytes([size & 127 | 128])
        body = bytes([field << 3 | 2]) + length + bytes([size]) + body
    return body


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MOST_ELEMENTS", 100)
    monkeypatch.setattr(otlp, "MOST_FIELDS", 1000)


def test_elements_of_every_list_count() -> None:
    for kind, body in {
        "resources": b"\x0a\x00" * 101,
        "scopes": nested(b"\x12\x00" * 100, 1),
        "spans": nested(b"\x12\x00" * 99, 1, 2),
        "events": nested(b"\x5a\x00" * 98, 1, 2, 2),
        "links": nested(b"\x6a\x00" * 98, 1, 2, 2),
        "attributes": nested(b"\x4a\x00" * 98, 1, 2, 2),
        "attributes of an event": nested(b"\x1a\x00" * 97, 1, 2, 2, 11),
        "values of an array": nested(b"\x0a\x00" * 97, 1, 2, 2, 9, 2, 5),
        "values of an object": nested(b"\x0a\x00" * 97, 1, 2, 2, 9, 2, 6),
        "attributes of the resource": nested(b"\x0a\x00" * 100, 1, 1),
        "tags that are longer than needed": b"\x8a\x80\x00\x00" * 101,
        "fields that are no lists": nested(b"\x50\x00" * 1000 + nested(b"Z" * 101, 5), 1, 2, 2),
    }.items():
        assert Traces.FromString(body), kind
        with pytest.raises(TooManyElementsError):
            check_elements_of_protobuf(body, TRACES)
    with pytest.raises(TooManyElementsError):
        check_elements_of_protobuf(nested(b"\x12\x00" * 99, 1, 2), LOGS)
    check_elements_of_protobuf(nested(b"\x12\x00" * 98, 1, 2), TRACES)


def test_texts_and_what_is_no_field_of_otlp_do_not_count() -> None:
    request = traces(span("a" * 300, attributes={"text": "\n\x12Zz" * 200, "list": ["JJJ"] * 20}))
    unknown = b"\x1b" + b"\x0a\x00" * 200 + b"\x1c"  # a group
    body = request.SerializeToString() + unknown
    assert Traces.FromString(body).resource_spans == request.resource_spans
    check_elements_of_protobuf(body, TRACES)
    check_elements_of_json(in_json(traces(span("a", attributes={"text": '{"a": [1, 2], "\\"' * 100}))))


@pytest.mark.parametrize("body", [b"\x0a\x05\x12" * 200, b"\x0a\xff" * 200, b"\x0f\x12" * 200, b"\x12" + b"\xff" * 300])
def test_malformed_messages_are_not_parsed(body: bytes) -> None:
    with pytest.raises(InputError, match="body: not OTLP in protobuf"):
        check_elements_of_protobuf(body + b"\x12" * 101, TRACES)


@pytest.mark.parametrize("items", [[{}] * 101, [[]] * 250, [1] * 450, [""] * 1100, {str(n): 0 for n in range(450)}])
def test_values_of_json_count(items: object) -> None:
    body = json.dumps({"resourceSpans": items}).encode()
    with pytest.raises(TooManyElementsError):
        check_elements_of_json(body)
    with pytest.raises(TooManyElementsError):
        check_elements_of_json(body + b'"' + b'\\"' * 1000)
