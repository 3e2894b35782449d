"""Posting to an application: requests and responses, faults, keys, limits."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import pytest
from http_application import SECRET, Application, Reply, cuts, failure, post, says, sends, spec, waits

from evalflows.llm import loop
from evalflows.llm.capped_client import OPENING_APART_S
from evalflows.llm.connections import headers_of
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.post import application_version, poster
from evalflows.specs.errors import CallError, ErrorKind, InputError, StorageError
from evalflows.specs.protocols import Posted

# The request


@pytest.mark.parametrize("body", [{"q": "Où? 问题 \n", "n": [1, None, True, 1.5]}, [], ["a"], "text", 0, False, {}])
def test_the_body_is_posted_as_json(application: Application, body: object) -> None:
    post(application, body=body)
    ((line, headers, sent),) = application.requests
    assert (line, headers["content-type"], json.loads(sent)) == ("POST /answer", "application/json", body)


def test_headers_are_sent_with_the_values_of_the_environment(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_KEY", SECRET)
    post(application, headers={"Authorization": "Bearer ${APP_KEY}", "X-Version": "2", "Content-Type": "x/json"})
    (headers,) = application.headers()
    sent = headers["authorization"], headers["x-version"], headers["content-type"]
    assert sent == (f"Bearer {SECRET}", "2", "x/json")


def test_an_unset_environment_variable_in_a_header_is_refused_before_posting(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APP_KEY", raising=False)
    monkeypatch.setenv("OTHER", SECRET)
    target = spec(application, headers={"X-A": "${OTHER}", "Authorization": "Bearer ${OTHER} ${APP_KEY}"})
    for make in (poster, lambda target: headers_of(target.headers, "target 'app'", target.url)):
        with pytest.raises(InputError) as caught:
            make(target)
        said = "target 'app': headers: Authorization: the environment variable APP_KEY is not set"
        assert str(caught.value) == said
    assert application.requests == []


def test_an_address_of_another_origin_that_says_the_version_gets_no_headers(application: Application) -> None:
    application.replies.extend([says("1"), says("2")])
    own = f"{application.url}/version"
    for address, version in ((own, "1"), (own.replace("127.0.0.1", "localhost"), "2")):
        target = spec(application, version_url=address, headers={"X-Team": "harbour"})
        assert application_version(target) == version
    assert [headers.get("x-team") for headers in application.headers()] == ["harbour", None]


def test_cookies_of_an_interrupted_response_are_not_kept(application: Application) -> None:
    begun = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; Path=/\r\ncontent-length: 10\r\n\r\n{"
    assert post(application, cuts(begun), says("Paris")).attempts == 2
    assert ["cookie" in headers for headers in application.headers()] == [False, False]


# The response


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        (says({"answer": "Paris", "n": [1, None]}), {"answer": "Paris", "n": [1, None]}),
        (says("Paris"), "Paris"),
        (says(None), None),
        (sends(200, b' {"a": 1}\r\n', "text/html"), {"a": 1}),
        (sends(200, '{"a": "é"}'.encode(), "application/problem+json"), {"a": "é"}),
        (sends(200, b"Paris, France", "text/plain"), "Paris, France"),
        (sends(200, "Zürich".encode("latin-1"), "text/plain; charset=iso-8859-1"), "Zürich"),
        (sends(200, b"{not json", "text/plain"), "{not json"),
        (sends(204, b"", None), ""),
    ],
    ids=lambda value: "" if callable(value) else repr(value),
)
def test_a_response_is_read_as_json_or_text(application: Application, reply: Reply, response: object) -> None:
    posted = post(application, reply)
    assert (posted.response, posted.attempts) == (response, 1)


@pytest.mark.parametrize("body", [b"", b"{", b"Paris", b"{'a': 1}", b'{"a": 1} {"a": 2}', b"<html>"])
def test_invalid_json_with_a_json_content_type_is_retried(application: Application, body: bytes) -> None:
    found = failure(application, *[sends(200, body)] * 2, attempts=2)
    said = f"the response is not JSON: got application/json: {body.decode()}; " if body else "the response is empty; "
    said = said.replace("<html>", "an HTML page:")
    assert (found.kind, str(found), found.attempts) == ("bad_answer", f"{said}wanted JSON", 2)
    assert len(application.requests) == 2


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("text/html", b"<html><title>Log in</title>"),
        ("text/event-stream", b'data: {"answer": 1}'),
        ("application/x-ndjson", b'{"answer": 1}\n{"answer": 2}\n'),
    ],
)
def test_a_page_or_a_stream_is_an_answer_only_if_the_spec_says_so(
    application: Application, type_: str, body: bytes
) -> None:
    found = failure(application, sends(200, body, type_), attempts=1)
    assert found.kind == "bad_answer" and f"`content_types: [{type_}]`" in str(found)
    assert post(application, sends(200, body, type_), content_types=[type_]).response == body.decode()


# Faults


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
    assert (found.kind, found.attempts) == ("connection", 2) and str(found).startswith(f"{application.url}: ")


def test_a_timeout_is_retried(application: Application) -> None:
    posted = post(application, waits(application), says("Paris"), timeout_s=1.0)
    assert (posted.response, posted.attempts) == ("Paris", 2)
    found = failure(application, waits(application), waits(application), timeout_s=0.1, attempts=2)
    assert (found.kind, str(found), found.attempts) == ("timeout", "no answer in time", 2)


# Keys


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Return the settings of a target with this key."""

    def settings(value: str) -> dict[str, Any]:
        monkeypatch.setenv("APP_KEY", value)
        return {"headers": {"Authorization": "Bearer ${APP_KEY}"}, "attempts": 1}

    return settings


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_repeated_by_the_application_is_redacted(
    application: Application, key: Callable[[str], dict[str, Any]], status: int
) -> None:
    assert SECRET not in str(failure(application, says({"invalid": f"Bearer {SECRET}"}, status), **key(SECRET)))


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\r\n", f"{SECRET}\nX-Other: 1"], ids=repr)
def test_a_key_that_cannot_be_sent_is_redacted(
    application: Application, key: Callable[[str], dict[str, Any]], value: str
) -> None:
    try:
        post(application, **key(value))
    except (InputError, CallError) as error:
        assert SECRET not in str(error)


# Concurrency


def all_at_once(application: Application, count: int, **settings: Any) -> list[Posted]:
    made = poster(spec(application, **settings))

    async def gathered() -> list[Posted]:
        return await asyncio.gather(*(made(number) for number in range(count)))

    return loop.run(gathered())


def slowly(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.02)
    says("late")(handler)


@pytest.mark.parametrize("width", [1, 3])
def test_concurrent_requests_stay_within_max_in_flight(application: Application, width: int) -> None:
    together = threading.Barrier(width, timeout=10)

    def reply(handler: BaseHTTPRequestHandler) -> None:
        together.wait()
        slowly(handler)

    application.replies.extend([reply] * 9)
    assert len(all_at_once(application, 9, max_in_flight=width)) == 9
    assert application.peak == width
    assert sorted(json.loads(body) for _, _, body in application.requests) == [*range(9)]


def test_a_failed_request_frees_its_slot(application: Application) -> None:
    faulty = [sends(401, b""), cuts(b""), sends(200, b"{"), waits(application)]
    for fault in faulty:
        failure(application, fault, max_in_flight=1, attempts=1, timeout_s=1.0)
    assert post(application, says("Paris"), max_in_flight=1, timeout_s=1.0).response == "Paris"


def test_a_request_that_waited_while_the_disk_failed_is_not_made(application: Application) -> None:
    made, full, failed = poster(spec(application, max_in_flight=1)), list[StorageError](), threading.Event()

    def reply(handler: BaseHTTPRequestHandler) -> None:
        failed.wait(10)
        says("Paris")(handler)

    def check() -> None:
        for error in full:
            raise error

    application.replies.append(reply)

    async def two() -> list[Posted | BaseException]:
        with recording(Recorder(keep=[].append, check=check)):
            both = [asyncio.ensure_future(made(number)) for number in range(2)]  # type: ignore[arg-type]
        while not application.requests:
            await asyncio.sleep(0.001)
        full.append(StorageError("/spool: No space left on device"))
        failed.set()
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = loop.run(two())
    assert isinstance(first, Posted) and second == full[0]
    assert len(application.requests) == 1
    full.clear()
    assert post(application, says("Paris"), max_in_flight=1).response == "Paris", "its slot is free"


def test_too_deeply_nested_json_is_a_bad_answer(application: Application) -> None:
    assert failure(application, sends(200, b"[" * 100_000), attempts=1).kind == "bad_answer"


def test_connections_are_opened_one_after_another_which_is_no_part_of_the_latency(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, began_at = anyio.connect_tcp, list[float]()

    async def late(*arguments: Any, **settings: Any) -> Any:
        began_at.append(time.perf_counter())
        await anyio.sleep(0.3)
        return await connect(*arguments, **settings)

    async def several() -> list[Posted]:
        return [*await asyncio.gather(*(made({"q": number}) for number in range(4)))]  # type: ignore[arg-type]

    monkeypatch.setattr(anyio, "connect_tcp", late)
    made, began = poster(spec(application)), time.perf_counter()
    latencies = [posted.latency_s or 1.0 for posted in loop.run(several())]
    assert max(latencies) < 0.3 <= time.perf_counter() - began
    assert len(began_at) == 4 and began_at[-1] - began_at[0] >= 3 * OPENING_APART_S
