"""A little S3 server in this process. It honours, ignores or refuses conditions, as real ones do, and loses answers."""

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Answer = tuple[int, bytes, dict[str, str]]


@dataclass(slots=True)
class Faults:
    """The shares of requests whose answers break off, and are lost, after what was asked for is done; and of 503."""

    torn: float
    lost: float
    refused: float
    seed: int = 7
    n: Counter[str] = field(default_factory=Counter)

    def draw(self) -> str:
        drawn, refused = random.Random(f"{self.seed} {self.n.total()}").random(), self.torn + self.lost + self.refused
        kinds = {"torn": self.torn, "lost": self.torn + self.lost, "refused": refused, "none": 1.0}
        kind = next(kind for kind, up_to in kinds.items() if drawn < up_to)
        self.n[kind] += 1
        return kind


class FakeS3(ThreadingHTTPServer):
    """Objects by their paths.

    A request with a condition that does not hold gets 412 if the server `honours` conditions, any with one 501 if it
    `refuses` them, else conditions are ignored. Listings show the objects as they were `lag_s` ago.
    """

    daemon_threads = True

    def __init__(self, *, refuses: bool, honours: bool, faults: Faults, lag_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses, self.honours, self.faults, self.lag_s = refuses, honours, faults, lag_s
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.changes: list[tuple[float, str, bytes | None]] = []

    def change(self, key: str, body: bytes | None) -> None:
        """Put an object, or delete it."""
        self.changes.append((time.monotonic(), key, body))
        _apply(self.objects, key, body)

    def listed(self) -> dict[str, bytes]:
        """Return the objects that a listing shows now."""
        if not self.lag_s:
            return self.objects
        found, until = dict[str, bytes](), time.monotonic() - self.lag_s
        for at, key, body in self.changes:
            if at <= until:
                _apply(found, key, body)
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeS3

    def do_PUT(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            fault = self.server.faults.draw()
            done = {"PUT": self._put, "POST": self._delete}.get(self.command, self._get)
            code, body, headers = (503, b"", {}) if fault == "refused" else done(sent)
        answer = self._answer(code, body, headers)
        if fault in ("torn", "lost"):
            answer = answer[: len(answer) - len(body) // 2 - 1] if fault == "torn" else b""
            self.close_connection = True
        self.wfile.write(answer)

    do_GET = do_HEAD = do_POST = do_PUT  # noqa: N815

    def _put(self, sent: bytes) -> Answer:
        wanted, is_new = self.headers["If-Match"], self.headers["If-None-Match"] is not None
        if self.server.refuses and (wanted or is_new):
            return 501, b"", {}
        there = self.server.objects.get(self._key)
        is_other = (is_new and there is not None) or (wanted and (there is None or _etag(there) != wanted))
        if self.server.honours and is_other:
            return 412, b"", {}
        if source := self.headers["x-amz-copy-source"]:
            sent = self.server.objects[unquote(source).lstrip("/")]
        self.server.change(self._key, sent)
        copied = f"<CopyObjectResult><ETag>{escape(_etag(sent))}</ETag></CopyObjectResult>".encode() if source else b""
        return 200, copied, {"ETag": _etag(sent)}

    def _get(self, _: bytes) -> Answer:
        if "list-type" in parse_qs(urlsplit(self.path).query):
            return 200, self._listing(), {}
        if (body := self.server.objects.get(self._key)) is None:
            return 404, b"", {}
        headers = {"ETag": _etag(body), "Last-Modified": formatdate(usegmt=True)}
        if (rest := self.headers["Range"]) is None:
            return 200, body, headers
        start = int(rest.removeprefix("bytes=").partition("-")[0])
        return 206, body[start:], headers | {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}

    def _delete(self, sent: bytes) -> Answer:
        keys = [part.partition("</Key>")[0] for part in sent.decode().split("<Key>")[1:]]
        for key in keys:
            self.server.change(f"evals/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _listing(self) -> bytes:
        (prefix,) = parse_qs(urlsplit(self.path).query).get("prefix", [""])
        found = {key.removeprefix("evals/"): body for key, body in sorted(self.server.listed().items())}
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>{_etag(body)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in found.items()
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _answer(self, code: int, body: bytes, headers: dict[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {code} -", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
        return head + (b"" if self.command == "HEAD" else body)


@contextmanager
def fake_s3(
    *, refuses: bool = False, honours: bool = False, faults: Faults | None = None, lag_s: float = 0.0
) -> Iterator[FakeS3]:
    """Run the server while the block does. Its bucket is `evals`."""
    server = FakeS3(refuses=refuses, honours=honours, faults=faults or Faults(0, 0, 0), lag_s=lag_s)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _apply(objects: dict[str, bytes], key: str, body: bytes | None) -> None:
    if body is None:
        objects.pop(key, None)
    else:
        objects[key] = body


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'
