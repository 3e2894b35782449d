"""Connections are opened before the answers whose latencies are compared, if the server keeps them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evalflows.llm import loop
from evalflows.llm.post import open_connections, poster
from evalflows.llm.protocols.openai import OpenAIClient
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
    client = OpenAIClient(url, None, EndpointConnection(base_url=url))
    return lambda: client.post("/chat/completions", {}), client.open_connections


@pytest.mark.parametrize("clients", [of_application, of_model])
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("answers_options", [True, False])
def test_connections_are_opened_before_the_first_answers_where_the_server_keeps_them(
    clients: Clients, protocol: str, answers_options: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    server = served(protocol, answers_options=answers_options)
    ask, open_connections = clients(f"http://127.0.0.1:{server.server_port}")

    async def everything() -> int:
        await open_connections(N, "run")
        await open_connections(N, "run")
        warmed = server.connections
        for _ in range(2):
            await asyncio.gather(*(ask() for _ in range(N)))
        return warmed

    assert loop.run(everything()) == N
    closes, keeps = protocol == "HTTP/1.0", protocol == "HTTP/1.1" and answers_options
    assert server.connections == (N if keeps else 3 * N if closes else 2 * N)
    assert capsys.readouterr().err.count("closes the connection after each answer") == closes
    server.shutdown()
    server.server_close()
