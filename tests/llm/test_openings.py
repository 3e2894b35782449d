"""Connections are opened before the answers whose latencies are compared, if the server keeps them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evalflows.llm import loop
from evalflows.llm.client import Client
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.post import open_connections, poster
from evalflows.specs.connections import EndpointConnection
from evalflows.specs.target import HttpTarget

N = 8
Clients = Callable[[str], tuple[Callable[[], Awaitable[object]], Callable[[int, str], Awaitable[None]]]]


class Server(ThreadingHTTPServer):
    """Counts its connections. Python's own queue of 5 holds fewer than are opened."""

    daemon_threads = True
    connections = 0

    def get_request(self) -> tuple[object, object]:  # type: ignore[override]
        self.connections += 1
        return super().get_request()


def served(protocol: str, *, answers_options: bool) -> Server:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        if answers_options:

            def do_OPTIONS(self) -> None:  # noqa: N802
                self.send_response(204)
                self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def of_application(url: str) -> tuple[Callable[[], Awaitable[object]], Callable[[int, str], Awaitable[None]]]:
    spec = HttpTarget(kind="http", name="app", url=url)
    post = poster(spec)
    return lambda: post({}), lambda count, run: open_connections(spec, count, run)


def of_model(url: str) -> tuple[Callable[[], Awaitable[object]], Callable[[int, str], Awaitable[None]]]:
    client = Client(url, None, EndpointConnection(base_url=url))
    return lambda: client.post("/chat/completions", {}), client.open_connections


@pytest.mark.parametrize("clients", [of_application, of_model])
@pytest.mark.parametrize(
    ("protocol", "answers_options", "n_left_out"),
    [("HTTP/1.1", True, 0), ("HTTP/1.1", False, N), ("HTTP/1.0", False, 0), ("HTTP/1.0", True, 0)],
)
def test_answers_that_open_connections_are_left_out_unless_all_do(
    clients: Clients, protocol: str, answers_options: bool, n_left_out: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server = served(protocol, answers_options=answers_options)
    ask, open_connections = clients(f"http://127.0.0.1:{server.server_port}")

    async def opens() -> bool:
        with recording(Recorder(keep=[].append)) as recorder:
            await ask()
        return recorder.opened_connection

    async def left_out() -> int:
        return sum(await asyncio.gather(*(opens() for _ in range(N))))

    async def everything() -> tuple[int, int, int]:
        await open_connections(N, "run")
        await open_connections(N, "run")
        return server.connections, await left_out(), await left_out()

    warmed, first, later = loop.run(everything())
    assert (warmed, first, later) == (N, n_left_out, 0)
    closes = protocol == "HTTP/1.0"
    assert server.connections == (N if n_left_out == 0 and not closes else 3 * N if closes else 2 * N)
    assert capsys.readouterr().err.count("closes the connection after each answer") == closes
    server.shutdown()
    server.server_close()
