"""Posting to an application: what is sent, how each response and fault is handled, and that no key is shown.

The application is a server on loopback that sends, byte for byte, what a test wants.
"""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evalflows.llm import attempts, loop
from evalflows.llm.post import headers_of, poster
from evalflows.specs.errors import CallError, ErrorKind, InputError
from evalflows.specs.protocols import Posted
from evalflows.specs.target import HttpTarget

SECRET = "sk-1234567890"
Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Application:
    """Sends the replies in turn, then an empty object, and records the requests."""

    url: str = ""
    replies: deque[Reply] = field(default_factory=deque)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        with self.lock:
            self.requests.append((f"{handler.command} {handler.path}", headers, body))
            reply = self.replies.popleft() if self.replies else says({})
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            reply(handler)
        except OSError:
            pass  # the client has gone
        finally:
            with self.lock:
                self.in_flight -= 1

    def headers(self) -> list[dict[str, str]]:
        return [headers for _, headers, _ in self.requests]


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        do_POST = do_GET = lambda self: made.answer(self)  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/answer"
    try:
        yield made
    finally:
        made.ended.set()
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


# What the application replies


def sends(status: int, body: bytes, type_: str | None = "application/json", **headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"content-type: {type_}"] if type_ else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda handler: _write(handler, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def says(value: object, status: int = 200, **headers: str) -> Reply:
    return sends(status, json.dumps(value).encode(), **headers)


def cuts(begun: bytes) -> Reply:
    """Sends the beginning of a response and closes the connection."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        _write(handler, begun)

    return reply


def waits(application: Application, seconds: float = 30.0) -> Reply:
    """Answers after a while, or when the test ends."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        application.ended.wait(seconds)
        says("late")(handler)

    return reply


def _write(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.wfile.write(content)
    handler.wfile.flush()


# What is asked of it


def spec(application: Application, **settings: Any) -> HttpTarget:
    return HttpTarget.model_validate({"kind": "http", "name": "app", "url": application.url} | settings)


def post(application: Application, *replies: Reply, body: Any = None, **settings: Any) -> Posted:
    application.replies.extend(replies)
    made = poster(spec(application, **settings))
    return loop.run(made({"q": "Why?"} if body is None else body))  # type: ignore[arg-type]


def failure(application: Application, *replies: Reply, **settings: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        post(application, *replies, **settings)
    assert "\n" not in str(caught.value)
    return caught.value


# What is sent


@pytest.mark.parametrize("body", [{"q": "Où? 问题 \n", "n": [1, None, True, 1.5]}, [], ["a"], "text", 0, False, {}])
def test_the_body_is_posted_as_json(application: Application, body: object) -> None:
    post(application, body=body)
    ((line, headers, sent),) = application.requests
    assert (line, headers["content-type"], json.loads(sent)) == ("POST /answer", "application/json", body)


def test_the_query_of_the_address_is_kept(application: Application) -> None:
    application.url += "/v1?mode=fast&x=%20"
    post(application)
    assert application.requests[0][0] == "POST /answer/v1?mode=fast&x=%20"


def test_headers_are_sent_with_the_values_of_the_environment(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_KEY", SECRET)
    post(application, headers={"Authorization": "Bearer ${APP_KEY}", "X-Version": "2", "Content-Type": "x/json"})
    (headers,) = application.headers()
    sent = headers["authorization"], headers["x-version"], headers["content-type"]
    assert sent == (f"Bearer {SECRET}", "2", "x/json")


def test_a_header_whose_variable_is_not_set_is_told_before_anything_is_posted(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APP_KEY", raising=False)
    monkeypatch.setenv("OTHER", SECRET)
    target = spec(application, headers={"X-A": "${OTHER}", "Authorization": "Bearer ${OTHER} ${APP_KEY}"})
    for make in (poster, headers_of):
        with pytest.raises(InputError) as caught:
            make(target)
        said = "target 'app': headers: Authorization: the environment variable APP_KEY is not set"
        assert str(caught.value) == said
    assert application.requests == []


def test_two_targets_at_one_address_send_their_own_headers(application: Application) -> None:
    first, second = (poster(spec(application, headers={"X-Variant": name})) for name in ("a", "b"))
    for made in (first, second, first):
        loop.run(made({}))  # type: ignore[arg-type]
    assert [headers["x-variant"] for headers in application.headers()] == ["a", "b", "a"]


def test_a_cookie_of_one_example_is_not_sent_with_the_next(application: Application) -> None:
    post(application, says(1, set_cookie="session=1; Path=/"))
    post(application)
    assert ["cookie" in headers for headers in application.headers()] == [False, False]


def test_a_cookie_of_a_response_that_broke_off_is_not_sent_with_the_next(application: Application) -> None:
    begun = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; Path=/\r\ncontent-length: 10\r\n\r\n{"
    assert post(application, cuts(begun), says("Paris")).attempts == 2
    assert ["cookie" in headers for headers in application.headers()] == [False, False]


# What is read


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        (says({"answer": "Paris", "n": [1, None]}), {"answer": "Paris", "n": [1, None]}),
        (says("Paris"), "Paris"),
        (says(None), None),
        (says([]), []),
        (says(1, 201), 1),
        (sends(200, b' {"a": 1}\r\n', "text/html"), {"a": 1}),
        (sends(200, b'{"a": 1}', None), {"a": 1}),
        (sends(200, '{"a": "é"}'.encode(), "application/problem+json"), {"a": "é"}),
        (sends(200, '{"a": "é"}'.encode("latin-1"), "application/json; charset=latin-1"), {"a": "é"}),
        (sends(200, b"Paris, France", "text/plain"), "Paris, France"),
        (sends(200, "Zürich".encode("latin-1"), "text/plain; charset=iso-8859-1"), "Zürich"),
        (sends(200, "Zürich".encode(), "text/plain; charset=no-such"), "Zürich"),
        (sends(200, b"{not json", "text/plain"), "{not json"),
        (sends(200, b"", "text/plain"), ""),
        (sends(204, b"", None), ""),
    ],
    ids=lambda value: "" if callable(value) else repr(value),
)
def test_a_response_is_json_or_else_text(application: Application, reply: Reply, response: object) -> None:
    posted = post(application, reply)
    assert (posted.response, posted.attempts) == (response, 1)


@pytest.mark.parametrize("body", [b"", b"{", b"Paris", b"{'a': 1}", b'{"a": 1} {"a": 2}', b"<html>"])
def test_what_says_that_it_is_json_and_is_not_is_tried_again(application: Application, body: bytes) -> None:
    found = failure(application, *[sends(200, body)] * 2, attempts=2)
    said = "the response's content type is JSON, but its body is not"
    assert (found.kind, str(found), found.attempts) == ("bad_answer", said, 2)
    assert len(application.requests) == 2


def test_what_is_read_at_the_second_attempt_is_the_response(application: Application) -> None:
    posted = post(application, sends(200, b"{"), says("Paris"))
    assert (posted.response, posted.attempts) == ("Paris", 2)


def test_json_may_begin_with_a_mark(application: Application) -> None:
    assert post(application, sends(200, b'\xef\xbb\xbf{"a": 1}'), attempts=1).response == {"a": 1}


def test_json_that_is_nested_too_deeply_cannot_be_read(application: Application) -> None:
    assert failure(application, sends(200, b"[" * 100_000), attempts=1).kind == "bad_answer"


# Faults


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
def test_a_passing_fault_is_tried_again_in_place(application: Application, status: int, kind: ErrorKind) -> None:
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
def test_a_final_fault_is_not_tried_again(application: Application, status: int, kind: ErrorKind) -> None:
    found = failure(application, says({"detail": "no"}, status))
    assert (found.kind, found.attempts, str(found)) == (kind, 1, f'HTTP {status}: {{"detail": "no"}}')
    assert len(application.requests) == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(application: Application, status: int) -> None:
    found = failure(application, says("", status, location="/elsewhere"))
    assert (found.kind, found.attempts) == ("bad_request", 1)
    assert [line for line, _, _ in application.requests] == ["POST /answer"]


def test_what_a_fault_says_is_told_in_one_line_that_is_not_long(application: Application) -> None:
    found = failure(application, sends(400, b"two\r\n lines " + b"x" * 10_000, "text/html"))
    assert str(found).startswith("HTTP 400: two lines xxx")
    assert len(str(found)) < 600


def test_the_wait_that_was_asked_for_is_kept_and_is_no_latency(application: Application) -> None:
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
def test_a_connection_that_is_cut_is_tried_again(application: Application, begun: bytes) -> None:
    assert post(application, cuts(begun), says("Paris")).response == "Paris"
    found = failure(application, cuts(begun), cuts(begun), attempts=2)
    assert (found.kind, found.attempts) == ("connection", 2)


def test_nobody_there_is_a_fault_of_the_connection(application: Application) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        application.url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    found = failure(application, attempts=2)
    assert (found.kind, found.attempts) == ("connection", 2)


def test_an_answer_that_does_not_come_in_time_is_tried_again(application: Application) -> None:
    posted = post(application, waits(application), says("Paris"), timeout_s=1.0)
    assert (posted.response, posted.attempts) == ("Paris", 2)
    found = failure(application, waits(application), waits(application), timeout_s=0.1, attempts=2)
    assert (found.kind, str(found), found.attempts) == ("timeout", "no answer in time", 2)


def test_the_time_out_is_that_of_the_whole_attempt(application: Application) -> None:
    def drips(handler: BaseHTTPRequestHandler) -> None:
        _write(handler, b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n")
        for _ in range(30):
            _write(handler, b"1")
            application.ended.wait(0.05)

    assert failure(application, drips, timeout_s=0.5, attempts=1).kind == "timeout"


# Keys


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Return the settings of a target with this key."""

    def settings(value: str) -> dict[str, Any]:
        monkeypatch.setenv("APP_KEY", value)
        return {"headers": {"Authorization": "Bearer ${APP_KEY}"}, "attempts": 1}

    return settings


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_that_the_application_repeats_is_not_told(
    application: Application, key: Callable[[str], dict[str, Any]], status: int
) -> None:
    assert SECRET not in str(failure(application, says({"invalid": f"Bearer {SECRET}"}, status), **key(SECRET)))


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\r\n", f"{SECRET}\nX-Other: 1"], ids=repr)
def test_a_key_that_cannot_be_sent_is_not_told(
    application: Application, key: Callable[[str], dict[str, Any]], value: str
) -> None:
    try:
        post(application, **key(value))
    except (InputError, CallError) as error:
        assert SECRET not in str(error)


def test_a_key_that_is_cut_short_is_not_told_either(
    application: Application, key: Callable[[str], dict[str, Any]]
) -> None:
    reply = sends(400, b"x" * 490 + SECRET.encode(), "text/plain")
    assert SECRET[:6] not in str(failure(application, reply, **key(SECRET)))


@pytest.mark.parametrize(("value", "told"), [("1", True), ("abc", True), ("abcd", False)])
def test_what_is_too_short_for_a_key_is_told(
    application: Application, key: Callable[[str], dict[str, Any]], value: str, told: bool
) -> None:
    found = str(failure(application, says(f"<{value}>", 401), **key(value)))
    assert (f"<{value}>" in found) is told
    assert found.startswith("HTTP 401: ")


def test_a_key_that_is_not_ascii_is_an_error_of_ours_or_sent(
    application: Application, key: Callable[[str], dict[str, Any]]
) -> None:
    try:
        post(application, **key(f"{SECRET}…"))
    except (InputError, CallError) as error:
        assert SECRET not in str(error)


@pytest.mark.parametrize("headers", [{"X A": "1"}, {"X-A": "two\nlines"}, {"": "1"}], ids=str)
def test_a_header_that_cannot_be_sent_is_not_tried_again(application: Application, headers: dict[str, str]) -> None:
    with pytest.raises((InputError, CallError)) as caught:
        post(application, headers=headers, attempts=2)
    assert getattr(caught.value, "attempts", 1) == 1
    assert application.requests == []


# Places


def all_at_once(application: Application, count: int, **settings: Any) -> list[Posted]:
    made = poster(spec(application, **settings))

    async def gathered() -> list[Posted]:
        return await asyncio.gather(*(made(number) for number in range(count)))

    return loop.run(gathered())


def slowly(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.02)
    says("late")(handler)


@pytest.mark.parametrize("width", [1, 3])
def test_no_more_requests_at_once_than_are_allowed(application: Application, width: int) -> None:
    together = threading.Barrier(width, timeout=10)

    def reply(handler: BaseHTTPRequestHandler) -> None:
        together.wait()
        slowly(handler)

    application.replies.extend([reply] * 9)
    assert len(all_at_once(application, 9, max_in_flight=width)) == 9
    assert application.peak == width
    assert sorted(json.loads(body) for _, _, body in application.requests) == [*range(9)]


def test_targets_at_one_address_share_their_places(application: Application) -> None:
    application.replies.extend([slowly] * 6)
    made = [poster(spec(application, name=name, max_in_flight=1)) for name in ("a", "b")]

    async def gathered() -> None:
        await asyncio.gather(*(one(number) for number in range(3) for one in made))

    loop.run(gathered())
    assert (application.peak, len(application.requests)) == (1, 6)


def test_the_wait_for_a_place_is_no_latency(application: Application) -> None:
    application.replies.extend([slowly] * 5)
    began = time.monotonic()
    latencies = [posted.latency_s for posted in all_at_once(application, 5, max_in_flight=1)]
    assert sum(latency for latency in latencies if latency) <= time.monotonic() - began
    assert min(latency for latency in latencies if latency is not None) >= 0.02


def test_a_fault_gives_its_place_back(application: Application) -> None:
    faulty = [sends(401, b""), cuts(b""), sends(200, b"{"), waits(application)]
    for fault in faulty:
        failure(application, fault, max_in_flight=1, attempts=1, timeout_s=1.0)
    assert post(application, says("Paris"), max_in_flight=1, timeout_s=1.0).response == "Paris"


def test_a_post_that_is_broken_off_gives_its_place_back(application: Application) -> None:
    application.replies.append(waits(application))
    made = poster(spec(application, max_in_flight=1))

    async def broken_off() -> Posted:
        first, second = asyncio.ensure_future(made(1)), asyncio.ensure_future(made(2))  # type: ignore[arg-type]
        while not application.requests:
            await asyncio.sleep(0.001)
        first.cancel()
        return await asyncio.wait_for(second, 10)

    assert loop.run(broken_off()).response == {}
