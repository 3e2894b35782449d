"""Posting to an application: HTTP errors, broken connections and timeouts."""

import socket
import time
from http.server import BaseHTTPRequestHandler

import pytest
from http_application import Application, cuts, failure, post, says, sends, waits, write_raw

from evalflows.specs.errors import ErrorKind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "rate_limited"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
        (408, "timeout"),
        (409, "server_error"),
    ],
)
def test_a_transient_fault_is_retried(application: Application, status: int, kind: ErrorKind) -> None:
    fault = sends(status, b"down")
    posted = post(application, fault, fault, says("Paris"), attempts=3)
    assert (posted.response, posted.attempts, len(application.requests)) == ("Paris", 3, 3)
    assert len({body for _, _, body in application.requests}) == 1
    found = failure(application, fault, fault, fault, attempts=3)
    assert (found.kind, found.attempts, str(found)) == (kind, 3, f"HTTP {status}: down")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (403, "authentication"),
        (404, "bad_request"),
        (405, "bad_request"),
        (422, "bad_request"),
    ],
)
def test_a_permanent_fault_is_not_retried(application: Application, status: int, kind: ErrorKind) -> None:
    found = failure(application, says({"detail": "no"}, status))
    assert (found.kind, found.attempts, str(found)) == (kind, 1, f'HTTP {status}: {{"detail": "no"}}')
    assert len(application.requests) == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(application: Application, status: int) -> None:
    found = failure(application, says("", status, location="/elsewhere"))
    assert (found.kind, found.attempts) == ("bad_request", 1)
    assert [line for line, _, _ in application.requests] == ["POST /answer"]


def test_the_body_of_a_fault_is_shortened_to_one_line(application: Application) -> None:
    found = failure(application, sends(400, b"two\r\n lines " + b"x" * 10_000, "text/html"))
    assert str(found).startswith("HTTP 400: two lines xxx")
    assert len(str(found)) < 600


def test_retry_after_is_respected_and_excluded_from_latency(application: Application) -> None:
    began = time.monotonic()
    posted = post(application, sends(429, b"", retry_after="0.2"), says("Paris"))
    assert posted.attempts == 2
    assert posted.latency_s is not None
    assert posted.latency_s + 0.2 <= time.monotonic() - began


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n",
        b'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"a":',
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    ],
)
def test_a_broken_connection_is_retried(application: Application, begun: bytes) -> None:
    assert post(application, cuts(begun), says("Paris")).response == "Paris"
    found = failure(application, cuts(begun), cuts(begun), attempts=2)
    assert (found.kind, found.attempts) == ("connection", 2)


def test_an_unreachable_server_is_a_connection_fault(application: Application) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        application.url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    found = failure(application, attempts=2)
    assert (found.kind, found.attempts) == ("connection", 2)


def test_a_timeout_is_retried(application: Application) -> None:
    posted = post(application, waits(application), says("Paris"), timeout_s=1.0)
    assert (posted.response, posted.attempts) == ("Paris", 2)
    found = failure(application, waits(application), waits(application), timeout_s=0.1, attempts=2)
    assert (found.kind, str(found), found.attempts) == ("timeout", "no answer in time", 2)


def test_the_timeout_covers_the_whole_attempt(application: Application) -> None:
    def drips(handler: BaseHTTPRequestHandler) -> None:
        write_raw(handler, b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n")
        for _ in range(30):
            write_raw(handler, b"1")
            application.ended.wait(0.05)

    assert failure(application, drips, timeout_s=0.5, attempts=1).kind == "timeout"
