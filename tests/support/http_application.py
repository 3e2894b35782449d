"""An application on loopback that sends, byte for byte, the replies of a test, and posts to it."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evalflows.llm import loop
from evalflows.llm.post import poster
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Posted
from evalflows.specs.target import HttpTarget

SECRET = "sk-1234567890"
Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Application:
    """Send the replies in turn, then empty objects, and record the requests."""

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


@contextmanager
def serving_application() -> Iterator[Application]:
    """Serve an application on loopback during the block."""
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


# Replies of the application


def sends(status: int, body: bytes, type_: str | None = "application/json", **headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"content-type: {type_}"] if type_ else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda handler: write_raw(handler, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def says(value: object, status: int = 200, **headers: str) -> Reply:
    return sends(status, json.dumps(value).encode(), **headers)


def cuts(begun: bytes) -> Reply:
    """Send the beginning of a response and close the connection."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        write_raw(handler, begun)

    return reply


def waits(application: Application, seconds: float = 30.0) -> Reply:
    """Answer after a while, or when the test ends."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        application.ended.wait(seconds)
        says("late")(handler)

    return reply


def write_raw(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.wfile.write(content)
    handler.wfile.flush()


# Posts to it


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
