"""Requests of OpenTelemetry's protocol, and what they are answered: only what is on disk is accepted."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asking import JSON, PROTOBUF, Client, body_of, names, partial
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from otlp_requests import START, in_json, logs, record, span, traces

from evalflows.receiver import Limits
from evalflows.store.store import Store
from evalflows.telemetry import otlp

KB = 1 << 10


def fail(*_: object) -> None:
    raise AssertionError("parsed")


def stored(client: Client, store: Store) -> list[str]:
    client.receiver.stop()
    return names(store)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON, "application/json; charset=utf-8"])
def test_spans_are_accepted_in_both_encodings(kind: str, client: Client, store: Store) -> None:
    request = traces(span("a"), span("b", span_id="0123456789abcdef"))
    body = request.SerializeToString() if kind == PROTOBUF else in_json(request)
    answer = client.post(body, kind)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind.partition(";")[0])
    assert answer.content == (b"" if kind == PROTOBUF else b"{}")
    assert stored(client, store) == ["a", "b"]
    assert store.query("select span_id from source.observations where name = 'b'") == [("0123456789abcdef",)]


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_bodies_are_accepted(
    encoding: str, compress: Callable[[bytes], bytes], client: Client, store: Store
) -> None:
    assert client.post(compress(body_of("a")), content_encoding=encoding).status_code == 200
    assert stored(client, store) == ["a"]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_log_records_about_model_calls_are_accepted(kind: str, client: Client, store: Store) -> None:
    request = logs(record("gen_ai.choice", body={"message": {"content": "hi"}}), record("other"))
    body = request.SerializeToString() if kind == PROTOBUF else in_json(request)
    answer = client.post(body, kind, "/v1/logs")
    parsed = ExportLogsServiceResponse()
    parsed = ExportLogsServiceResponse.FromString(answer.content) if kind == PROTOBUF else Parse(answer.text, parsed)
    assert (answer.status_code, parsed.partial_success.rejected_log_records) == (200, 0)
    assert stored(client, store) == ["gen_ai.choice"]


def test_spans_with_wrong_ids_are_rejected_and_the_others_accepted(client: Client, store: Store) -> None:
    request = traces(span("a", trace_id=""), span("b", span_id="ab" * 4), span("c"))
    answer = client.post(request.SerializeToString())
    assert answer.status_code == 200
    assert partial(answer) == (
        2,
        "span 'a': got no trace id, wanted 16 bytes; span 'b': got a span id of 4 bytes, wanted 8 bytes",
    )
    in_words = client.post(in_json(request), JSON).json()["partialSuccess"]
    assert in_words == {"rejectedSpans": "2", "errorMessage": partial(answer)[1]}
    assert stored(client, store) == ["c"]


def test_the_json_of_ids_is_hexadecimal_in_both_cases(client: Client, store: Store) -> None:
    own = {"traceId": "0AF7651916CD43DD8448EB211C80319C", "spanId": "b7ad6b7169203331", "name": "a"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [own]}]}]}).encode()
    assert client.post(body, JSON).status_code == 200
    assert stored(client, store) == ["a"]
    assert store.query("select trace_id from source.observations") == [(own["traceId"].lower(),)]


def test_bad_data_is_refused_in_one_line(client: Client, store: Store) -> None:
    for body, kind, path in (
        (b"\xff\xff", PROTOBUF, "/v1/traces"),
        (body_of("a")[:-3], PROTOBUF, "/v1/traces"),
        (b"", JSON, "/v1/traces"),
        (b"[]", JSON, "/v1/traces"),
        (b"{", JSON, "/v1/traces"),
        (b'{"resourceSpans": [5]}', JSON, "/v1/traces"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', JSON, "/v1/traces"),
        (b'{"resourceSpans": ' + b"[" * 2000 + b"]" * 2000 + b"}", JSON, "/v1/traces"),
        (b'{"resourceLogs": [{}]}', JSON, "/v1/traces"),
        (b'{"resourceSpans": [{}]}', JSON, "/v1/logs"),
    ):
        status, reason = client.refusal(body, kind, path=path)
        assert status == 400, body[:80]
        assert reason and "\n" not in reason
    assert stored(client, store) == []


@pytest.mark.parametrize(("levels", "status"), [(20, 200), (450, 400)])
def test_values_nested_too_deeply_are_refused(levels: int, status: int, client: Client, store: Store) -> None:
    value = '{"stringValue": "x"}'
    for _ in range(levels):
        value = f'{{"arrayValue": {{"values": [{value}]}}}}'
    own = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "a", "attributes": [{"key": "deep", "value": "VALUE"}]}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [own]}]}]}).replace('"VALUE"', value)
    assert client.post(body.encode(), JSON).status_code == status
    assert stored(client, store) == (["a"] if status == 200 else [])


def test_other_content_types_encodings_methods_and_paths_are_refused(client: Client) -> None:
    for kind in ("text/plain", "application/grpc", ""):
        status, reason = client.refusal(body_of("a"), kind)
        assert (status, reason) == (415, "got another content type, wanted application/x-protobuf or application/json")
    assert client.refusal(body_of("a"), content_encoding="zstd")[0] == 415
    assert client.http.get("/v1/traces").status_code == 405
    assert client.post(b"", path="/v1/metrics").status_code == 404


# sizes


def test_a_body_above_the_limit_is_refused_and_one_below_it_accepted(served: Callable[..., Any], store: Store) -> None:
    with served(limits=Limits(body=KB)) as client:
        status, reason = client.refusal(body_of("x" * KB))
        assert (status, reason.startswith("got a body of more than 1024 bytes as sent")) == (413, True)
        assert client.post(body_of("a")).status_code == 200
        assert stored(client, store) == ["a"]


def test_a_body_without_a_length_is_limited_too(served: Callable[..., Any], store: Store) -> None:
    def pieces(body: bytes) -> Iterator[bytes]:
        yield from (body[start : start + 100] for start in range(0, len(body), 100))

    with served(limits=Limits(body=KB)) as client:
        assert client.refusal(pieces(body_of("x" * KB)))[0] == 413
        assert client.refusal(pieces(body_of("x" * 20 * KB)))[0] == 413, "of which not all is read"
        assert client.post(pieces(body_of("a"))).status_code == 200
        assert stored(client, store) == ["a"]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_bomb_is_refused_when_it_has_grown_to_the_limit(kind: str, served: Callable[..., Any]) -> None:
    bomb = gzip.compress(bytes(50_000 * KB))
    with served(limits=Limits(body=100 * KB)) as client:
        assert len(bomb) < 100 * KB
        status, reason = client.refusal(bomb, kind, content_encoding="gzip")
    assert (status, reason.startswith("got a body of more than 102400 bytes after decompression")) == (413, True)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_resource_that_is_long_for_its_many_spans_is_refused(
    kind: str, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has the resource of its own: a request of 19 KB took more than a gigabyte."""
    monkeypatch.setattr(otlp, "MOST_REPEATED", 10 * KB)
    for n_spans, status in ((11, 400), (9, 200)):
        spans = (span("a", span_id=f"{number:016x}") for number in range(1, n_spans + 1))
        request = traces(*spans, resource={"host": "x" * KB})
        body = request.SerializeToString() if kind == PROTOBUF else in_json(request)
        assert client.post(gzip.compress(body), kind, content_encoding="gzip").status_code == status
    assert stored(client, store) == ["a"] * 9


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_more_elements_than_allowed_are_refused_before_they_are_parsed(
    kind: str, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MOST_ELEMENTS", 1000)
    bomb, whole = traces(*[span("a")] * 1000), traces(span("b"))
    body, fine = ((one.SerializeToString() if kind == PROTOBUF else in_json(one)) for one in (bomb, whole))
    monkeypatch.setattr("evalflows.receiver.parse_json" if kind == JSON else "evalflows.receiver.invalid_spans", fail)
    status, reason = client.refusal(gzip.compress(body), kind, content_encoding="gzip")
    assert (status, reason.startswith("got more than 500000 spans, log records, events")) == (413, True)
    monkeypatch.undo()
    assert client.post(fine, kind).status_code == 200
    assert stored(client, store) == ["b"]


def test_what_cannot_be_decompressed_whole_is_refused(client: Client) -> None:
    for body, reason in (
        (gzip.compress(body_of("a" * 500))[:-20], "body: its compressed data end too early"),
        (gzip.compress(body_of("a"))[:10], "body: its compressed data end too early"),
        (b"", "body: its compressed data end too early"),
        (gzip.compress(body_of("a")) + b"more", "body: 4 bytes follow its compressed data"),
        (body_of("a"), "body: cannot be decompressed"),
    ):
        status, said = client.refusal(body, content_encoding="gzip")
        assert (status, said.startswith(reason)) == (400, True)


# tokens


def test_without_the_token_nothing_is_read(served: Callable[..., Any], store: Store) -> None:
    password = base64.b64encode(b"secret:other").decode()
    with served(token="secret") as client:
        assert client.refusal(body_of("a"))[0] == 401
        for given in ("Bearer other", "Bearer", "secret", "Digest secret", "Basic secret", f"Basic {password}"):
            status, reason = client.refusal(body_of("a"), authorization=given)
            assert (status, "secret" in reason) == (401, False), given
        assert stored(client, store) == []


def test_the_token_is_accepted_as_a_bearers_and_as_a_password(served: Callable[..., Any], store: Store) -> None:
    basic = base64.b64encode(b"a-public-key:secret").decode()
    with served(token="secret") as client:
        assert client.post(body_of("a"), authorization="Bearer secret").status_code == 200
        assert (
            client.post(
                body_of("a", "b"), authorization=f"basic {basic}", path="/api/public/otel/v1/traces"
            ).status_code
            == 200
        )
        assert client.http.get("/health").status_code == 200, "probes have no token"
        assert stored(client, store) == ["a", "b"]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_web_pages_and_other_host_names_are_refused(
    kind: str, served: Callable[..., Any], client: Client, store: Store
) -> None:
    followed = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    other_site = "got a request from another site's page, wanted one from this server's own pages or from a program"
    other_host = "got another host name, wanted 127.0.0.1 or localhost"
    for headers, reason in (
        ({"origin": "http://evil.test"}, other_site),
        ({"origin": "null"}, other_site),
        ({"sec_fetch_site": "cross-site"}, other_site),
        ({"sec_fetch_site": "same-site", **followed}, other_site),
        ({"host": "evil.example"}, other_host),
        ({"host": "127.0.0.1.evil.example:4318"}, other_host),
    ):
        assert client.refusal(body_of("a"), kind, **headers) == (403, reason), headers
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for path in ("/health", "/v1/traces", "/nothing"):
            assert client.http.get(path, headers=named).status_code == 403, (path, headers)
    empty = b"" if kind == PROTOBUF else b"{}"
    assert client.post(empty, kind, origin="http://127.0.0.1:4318", sec_fetch_site="same-origin").status_code == 200
    assert client.post(empty, kind, host="localhost:4318").status_code == 200
    assert stored(client, store) == []
    with served(token="secret") as guarded:
        bearer = {"authorization": "Bearer secret", "host": "evals.example"}
        assert guarded.post(empty, kind, **bearer).status_code == 200
        assert guarded.post(empty, kind, **bearer, origin="http://evil.test").status_code == 403
        for other in (b"Bearer \xc4\xff", b"Basic \xc4"):
            raw = {"content-type": kind, "authorization": other}
            assert guarded.http.post("/v1/traces", content=empty, headers=raw).status_code == 401


# clocks


def test_spans_of_clocks_that_run_backwards_are_kept(client: Client, store: Store) -> None:
    backwards = span("a", start=START, end=START - 10**9)
    absurd = span("b", span_id="ab" * 8, start=2**64 - 1, end=1)
    assert partial(client.post(traces(backwards, absurd).SerializeToString())) == (0, "")
    assert stored(client, store) == ["a", "b"]
    rows = store.query("select day, started_at from source.observations order by name")
    assert rows[0] == ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC))
    assert rows[1] == ("1970-01-01", datetime(1970, 1, 1, tzinfo=UTC))
    assert store.query("""select attributes ->> '$."evalflows.implausible.started_at"' from source.observations
                          where name = 'b'""") == [("2262-04-11T23:47:16.854775+00:00",)]
