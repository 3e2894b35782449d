"""An application to post to."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from http_application import Application

from evalflows.llm import attempts


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """An application on loopback; posts to it are retried without a pause."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
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
