"""A little S3 server in this process, which ignores conditions or refuses them, as some real ones do."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class FakeS3(ThreadingHTTPServer):
    """Objects by their paths. `refuses`: a request with a condition gets 501, else the condition is ignored."""

    def __init__(self, *, refuses: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses = refuses
        self.objects: dict[str, bytes] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeS3

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refuses and (self.headers["If-None-Match"] or self.headers["If-Match"]):
            self._answer(501, b"")
            return
        self.server.objects[self._key] = body
        self._answer(200, b"", ETag=_etag(body))

    def do_GET(self) -> None:
        if "list-type" in parse_qs(urlsplit(self.path).query):
            self._answer(200, self._listing())
        elif (body := self.server.objects.get(self._key)) is None:
            self._answer(404, b"")
        else:
            self._answer(200, body, ETag=_etag(body), **{"Last-Modified": formatdate(usegmt=True)})

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        for key in keys:
            self.server.objects.pop(f"evals/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _listing(self) -> bytes:
        (prefix,) = parse_qs(urlsplit(self.path).query).get("prefix", [""])
        found = {key.removeprefix("evals/"): body for key, body in sorted(self.server.objects.items())}
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>{_etag(body)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in found.items()
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def fake_s3(*, refuses: bool = False) -> Iterator[FakeS3]:
    """Run the server while the block does. Its bucket is `evals`."""
    server = FakeS3(refuses=refuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'
