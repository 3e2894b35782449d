"""What an endpoint may send: so many bytes, unpacked, and no way to another host."""

import gc
import gzip
import json
import tracemalloc
import zlib
from http.server import BaseHTTPRequestHandler

import pytest
from http_application import Application, Reply, cuts, failure, post, says, sends, write_raw

from evalflows.llm import loop
from evalflows.llm.client import Response
from evalflows.llm.endpoint_errors import fault_of
from evalflows.llm.protocols.openai import OpenAIClient
from evalflows.specs.connections import EndpointConnection
from evalflows.specs.errors import CallError

ONE_MB = {"max_response_mb": 1}
BOMB = gzip.compress(b'"' + b"a" * (20 << 20) + b'"')
"""Twenty kilobytes that unpack to twenty megabytes."""


def endless(handler: BaseHTTPRequestHandler) -> None:
    write_raw(handler, b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
    while True:  # until the client has gone
        write_raw(handler, b" " * 65536)


def call(application: Application, *replies: Reply) -> Response:
    application.replies.extend(replies)
    connection = EndpointConnection(base_url=application.url, timeout_s=20, max_response_mb=1)
    client = OpenAIClient(application.url, "sk-1234567890", connection)

    async def made() -> Response:
        try:
            return await client.post("/chat/completions", {"model": "m"})
        finally:
            await client.close()

    return loop.run(made())


@pytest.mark.parametrize("reply", [endless, sends(200, BOMB, content_encoding="gzip")])
def test_a_response_is_read_up_to_the_limit(application: Application, reply: Reply) -> None:
    too_large = "the response is larger than 1 MB (max_response_mb)"
    fault = failure(application, reply, attempts=1, **ONE_MB)
    assert (fault.kind, str(fault)) == ("bad_answer", too_large)
    with pytest.raises(CallError, match=r"larger than 1 MB \(max_response_mb\)") as caught:
        call(application, reply)
    assert caught.value.kind == "bad_answer"


@pytest.mark.parametrize("reply", [endless, sends(200, b"x" * 900_000), sends(500, b"x" * 900_000)])
def test_an_error_keeps_nothing_of_what_was_received(application: Application, reply: Reply) -> None:
    kept: list[CallError] = []
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(CallError) as caught:
                call(application, reply)
            kept.append(caught.value)
        del caught
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_packed_responses_are_unpacked(application: Application, encoding: str, pack: type) -> None:
    packed = sends(200, pack(json.dumps({"a": "b" * 1000}).encode()), content_encoding=encoding)
    assert post(application, packed).response == {"a": "b" * 1000}
    assert call(application, packed).body == {"a": "b" * 1000}
    assert {headers["accept-encoding"] for headers in application.headers()} == {"gzip, deflate"}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_refused_with_its_destination(application: Application, status: int) -> None:
    to = says({}, status, location="https://me:pass@elsewhere.example/v2?token=secret#part")
    with pytest.raises(CallError) as caught:
        call(application, to)
    expected = f"HTTP {status}: redirects to https://elsewhere.example/v2, wanted that address in the spec"
    assert (caught.value.kind, str(caught.value)) == ("bad_request", expected)
    fault = failure(application, to)
    assert (fault.kind, str(fault)) == ("bad_request", expected)
    assert len(application.requests) == 2


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000, "nonsense", "\ud800".encode("utf-8", "surrogatepass")])
def test_an_unreadable_body_is_a_bad_answer(application: Application, text: str | bytes) -> None:
    body = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(CallError, match=r"is not JSON|nested too deeply") as caught:
        call(application, sends(200, body))
    assert caught.value.kind == "bad_answer"


def raw(*lines: str) -> Reply:
    return cuts("\r\n".join(["HTTP/1.1 200 OK", *lines, "content-length: 2", "", "{}"]).encode())


@pytest.mark.parametrize("reply", [raw(*(f"x-{number}: y" for number in range(20_000))), raw(f"x: {'y' * 200_000}")])
def test_a_flood_of_headers_is_a_bad_answer_and_no_fault_of_the_users_code(
    application: Application, reply: Reply
) -> None:
    fault = failure(application, reply, attempts=1)
    assert (fault.kind, str(fault)) == ("bad_answer", "the headers of the response are too large")
    with pytest.raises(
        CallError, match=r"the response is not HTTP, or too large: (Too many headers|Got more)"
    ) as caught:
        call(application, reply)
    assert caught.value.kind == "bad_answer"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (
            raw("content-type: text/plain; charset=hex"),
            "bad_answer",
            "the response has the charset 'hex', wanted one of texts",
        ),
        (
            raw("content-type: text/plain; charset=idna"),
            "bad_answer",
            "the response has the charset 'idna', wanted one of texts",
        ),
        (sends(302, b"", location="http://[::1"), "bad_request", "HTTP 302: redirects to no valid address"),
    ],
)
def test_headers_that_cannot_be_understood_are_the_endpoints_fault(
    application: Application, reply: Reply, kind: str, text: str
) -> None:
    fault = failure(application, reply, attempts=1)
    with pytest.raises(CallError) as caught:
        call(application, reply)
    assert (fault.kind, str(fault)) == (caught.value.kind, str(caught.value)) == (kind, text)


def test_a_fault_with_a_cause_keeps_its_kind() -> None:
    fault = CallError("bad_answer", "not JSON")
    fault.__cause__ = ValueError("x")
    assert fault_of(fault) is fault


def test_other_encodings_are_refused(application: Application) -> None:
    fault = failure(application, sends(200, b"x", content_encoding="br"), attempts=1)
    assert (fault.kind, str(fault)) == (
        "bad_answer",
        "the response is encoded as 'br', wanted gzip, deflate or none",
    )
