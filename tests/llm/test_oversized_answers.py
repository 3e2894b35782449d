"""Endpoints that answer without end: bounded memory, and one line for each, in a whole run."""

import json
import os
import resource
import subprocess
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command import command
from matched import asked

MEGABYTE = b"a" * (1 << 20)
ROWS, MOST_MB = 2, 1_500
"""Of each, and the memory of the whole run: 64 MB are read of a response, and 16 are at once."""


def endless(handler: BaseHTTPRequestHandler) -> None:
    while True:
        handler.wfile.write(MEGABYTE)


def hundreds_of_megabytes(handler: BaseHTTPRequestHandler) -> None:
    head = b'{"choices": [{"message": {"content": "'
    length = len(head) + 400 * len(MEGABYTE)
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length)
    handler.wfile.write(head)
    for _ in range(400):
        handler.wfile.write(MEGABYTE)


def stream(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n[")
    endless(handler)


def chunks(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        handler.wfile.write(b"1\r\na\r\n" * 100_000)


def bomb(handler: BaseHTTPRequestHandler) -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n")
    while True:
        handler.wfile.write(packed.compress(MEGABYTE))


def header_line(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
    endless(handler)


def headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"x-more: of it\r\n" * 10_000)


def status_line(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 ")
    endless(handler)


ANSWERS: list[Callable[[BaseHTTPRequestHandler], None]] = [
    *(hundreds_of_megabytes, stream, chunks, bomb, header_line, headers, status_line)
]


@pytest.mark.soak
def test_answers_without_end_take_bounded_memory(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            (answer,) = [one for one in ANSWERS if one.__name__ in self.path.split("/")]
            with suppress(OSError):
                answer(self)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    targets, connections = [], {}
    for answer in ANSWERS:
        name = answer.__name__
        settings = {"timeout_s": 8, "attempts": 1}
        targets.append({"kind": "http", "name": f"http-{name}", "url": f"{url}/{name}", **settings})
        targets.append({"kind": "chat", "name": f"chat-{name}", "connection": name, "user": "{question}"})
        connections[name] = {"kind": "endpoint", "base_url": f"{url}/{name}", "model": "m", **settings}
    rows = [{"inputs": {"question": f"q{n}"}, "outputs": {"a": "b"}} for n in range(ROWS)]
    fields = {"name": "big", "dataset": {"rows": rows}, "targets": targets, "connections": connections}
    (tmp_path / "spec.yaml").write_text(json.dumps(fields | {"evaluators": ["exact_match"]}))
    process = subprocess.Popen(
        command("run", "spec.yaml"), cwd=tmp_path, env=os.environ | prefect_environment, text=True, stdout=-1, stderr=-1
    )
    said = "\n".join(process.communicate(timeout=580))
    server.shutdown()
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    failures = asked("select target, any_value(error), count(*) from failures group by 1 order by 1")
    print(f"{peak_mb} MB", *failures, sep="\n")
    assert "Traceback" not in said and peak_mb < MOST_MB, (peak_mb, said[-3000:])
    assert [(target, count) for target, _, count in failures] == sorted((one["name"], ROWS) for one in targets)
    assert not [error for _, error, _ in failures if len(error) > 200 or "\n" in error]
