"""Requests of OpenTelemetry's protocol become rows: valid spans are kept, whatever else is in the request."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.json_format import MessageToDict
from otlp_requests import SPAN, START, TRACE, in_json, logs, record, span, traces

from evalflows.specs.errors import InputError
from evalflows.telemetry.feedback import Telemetry
from evalflows.telemetry.otlp import parse_json, rows_of_fields, rows_of_logs, rows_of_traces

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_span_is_a_row() -> None:
    sent = span(parent_id="00f067aa0ba902b7", attributes={"gen_ai.request.model": "m"}, code=2)
    (row,) = rows_of_traces(traces(sent, resource={"service.name": "shop"})).observations
    assert (row.trace_id, row.span_id, row.parent_id) == (TRACE, SPAN, "00f067aa0ba902b7")
    assert (row.name, row.kind, row.status, row.scope, row.source) == ("chat", "client", "error", "a library", "otlp")
    assert row.started_at == AT
    assert row.ended_at is not None
    assert (row.ended_at - AT).total_seconds() == 1.5
    assert (row.day, row.resource) == ("2026-01-01", '{"service.name":"shop"}')
    assert (row.attributes, row.contents) == ('{"gen_ai.request.model":"m"}', None)


def test_json_and_protobuf_give_the_same_rows() -> None:
    values = {"a": [1, {"b": "x"}], "bytes": b"\xff\x00", "flag": False, "inf": float("inf"), "text": "ü", "none": None}
    request = traces(span(attributes=values, events={"gen_ai.choice": {"index": 0}}), resource={"service.name": "x"})
    assert same(rows_of_traces(parse_json(in_json(request))), rows_of_traces(request))
    request_of_logs = logs(record("gen_ai.choice", body={"message": {"content": "hi"}}))
    assert same(rows_of_logs(parse_json(in_json(request_of_logs))), rows_of_logs(request_of_logs))


def test_requests_in_protobufs_own_json_give_the_same_rows() -> None:
    """Its ids are base64, its enums names; an exporter may write snake_case, and ids with 0x."""
    request = traces(span(parent_id="00f067aa0ba902b7", attributes={"a_b": {"c_d": 1}}, code=2))
    for in_snake_case in (True, False):
        fields = MessageToDict(request, preserving_proto_field_name=in_snake_case)
        assert same(rows_of_fields(fields), rows_of_traces(request))
    text = in_json(request).replace(TRACE.encode(), b"0x" + TRACE.encode())
    assert same(rows_of_fields(json.loads(text)), rows_of_traces(request))
    request_of_logs = logs(record("gen_ai.choice", body={"message": "hi"}))
    assert same(rows_of_fields(MessageToDict(request_of_logs)), rows_of_logs(request_of_logs))


@pytest.mark.parametrize("per_s", [1, 10**3, 10**6])
def test_times_in_other_units_are_of_this_century(per_s: int) -> None:
    (row,) = rows_of_traces(traces(span(start=START * per_s // 10**9, end=START * per_s // 10**9 + per_s))).observations
    assert (row.started_at, row.ended_at) == (AT, AT + timedelta(seconds=1))


def same(one: Telemetry, other: Telemetry) -> bool:
    """Whether two have the same rows, whenever they were recorded."""
    pairs = zip(one.observations, other.observations, strict=True)
    return bool(one.observations) and all(replace(a, recorded_at=b.recorded_at) == b for a, b in pairs)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({"trace_id": ""}, "span 'chat': got no trace id, wanted 16 bytes"),
        ({"trace_id": "ab" * 8}, "span 'chat': got a trace id of 8 bytes, wanted 16 bytes"),
        ({"trace_id": "00" * 16}, "span 'chat': got a trace id of zeros, wanted a valid one"),
        ({"span_id": ""}, "span 'chat': got no span id, wanted 8 bytes"),
        ({"span_id": "ab" * 16}, "span 'chat': got a span id of 16 bytes, wanted 8 bytes"),
    ],
)
def test_a_span_with_invalid_ids_is_rejected_and_the_others_are_kept(ids: dict[str, str], reason: str) -> None:
    parsed = rows_of_traces(traces(span(**ids), span("other")))
    assert parsed.rejected == [reason]
    assert [row.name for row in parsed.observations] == ["other"]


@pytest.mark.parametrize(("start", "day"), [(0, "1970-01-01"), (1, "1970-01-01"), (2**64 - 1, "2100-01-01")])
def test_absurd_times_are_kept_within_the_days_of_the_store(start: int, day: str) -> None:
    (row,) = rows_of_traces(traces(span(start=start, end=0))).observations
    assert (row.day, row.ended_at) == (day, None)


def test_genai_events_in_logs_belong_to_their_span() -> None:
    parsed = rows_of_logs(logs(record("gen_ai.user.message", body={"content": "hi"}), record("gen_ai.choice")))
    assert [(row.name, row.kind, row.parent_id) for row in parsed.observations] == [
        ("gen_ai.user.message", "log", SPAN),
        ("gen_ai.choice", "log", SPAN),
    ]
    assert json.loads(parsed.observations[0].attributes) == {"body": {"content": "hi"}, "time_unix_nano": START}
    assert parsed.observations[0].span_id != parsed.observations[1].span_id


def test_an_event_that_arrives_twice_has_one_id_and_another_event_another() -> None:
    first, second, third = (
        rows_of_logs(logs(record("gen_ai.user.message", body=body))).observations[0].span_id
        for body in ("hi", "hi", "ho")
    )
    assert first == second != third


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'"x"', b'{"resourceSpans": 1}', b'{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}'],
)
def test_what_is_not_otlp_is_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^not OTLP in JSON: .+$"):
        parse_json(text)


def nested(depth: int) -> bytes:
    value = b'{"arrayValue": {"values": [' * depth + b'{"stringValue": "x"}' + b"]}}" * depth
    span = b'{"traceId": "%s", "spanId": "%s", "attributes": [{"key": "k", "value": ' % (TRACE.encode(), SPAN.encode())
    return b'{"resourceSpans": [{"scopeSpans": [{"spans": [' + span + value + b"}]}]}]}]}"


def test_values_are_read_unless_they_are_nested_too_deeply() -> None:
    assert len(rows_of_traces(parse_json(nested(90))).observations) == 1
    with pytest.raises(InputError, match=r"^not OTLP in JSON: .+$"):
        parse_json(nested(2000))


def test_an_event_with_an_id_of_the_wrong_length_is_rejected() -> None:
    parsed = rows_of_logs(logs(record("gen_ai.choice", span_id="ab")))
    assert parsed.rejected == ["log record 'gen_ai.choice': got a span id of 1 bytes, wanted 8 bytes"]


def test_other_log_records_are_counted_and_ignored() -> None:
    parsed = rows_of_logs(logs(record("http.request"), record("gen_ai.choice", trace_id="", span_id=""), record("")))
    assert (parsed.ignored, parsed.observations, parsed.rejected) == (3, [], [])
