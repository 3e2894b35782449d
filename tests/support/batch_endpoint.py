"""An OpenAI-compatible endpoint on loopback that also has files and batches, and counts what it was asked."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from endpoint import Reply, Request, echo

Lines = list[dict[str, Any]]


def structured(request: Request) -> Reply:
    """Answer as `echo` does; where a schema is asked for, with its first values."""
    reply = echo(request)
    schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
    if schema:
        number = int(reply.body["choices"][0]["message"]["content"].removeprefix("answer ") or 0)
        reply.body["choices"][0]["message"]["content"] = json.dumps(value_of(schema, number))
    return reply


def value_of(of: dict[str, Any], number: int) -> Any:
    if of.get("type") == "object":
        return {name: value_of(field, number) for name, field in of["properties"].items()}
    if "enum" in of:
        return of["enum"][number % len(of["enum"])]
    return {"boolean": number % 4 > 0, "integer": of.get("minimum", 0) + number % 3, "number": 0.5}.get(
        of.get("type", ""), "because"
    )


class BatchEndpoint:
    """Its batches end after `looks` requests for their state, and then at once."""

    def __init__(self, answer: Callable[[Request], Reply] = structured, looks: int = 1) -> None:
        self.answer, self.looks, self.base_url = answer, looks, ""
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looked: Counter[str] = Counter()
        self.submitted: Counter[str] = Counter()  # how often each request was submitted in a batch, as JSON
        self.headers: list[dict[str, str]] = []  # of all requests, by names in lower case
        self.direct = 0  # chat completions that were asked for directly
        self.deleted: list[str] = []
        self.refusals: list[tuple[int, str]] = []  # of the next batches that are created, with a status
        self.result: Callable[[Lines], str] = as_lines  # makes the file of results
        self.end: Callable[[dict[str, Any], Lines], Lines] | None = None  # which calls are run, and the state
        self.before: Callable[[str], None] = lambda _: None  # is told of each request, by method and path
        self.lock = threading.Lock()

    def reply(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        self.before(f"{method} {path}")
        path = path.partition("?")[0].removeprefix("/v1/")
        with self.lock:
            status, answered = self._reply(method, path.split("/"), body, kind)
        return status, answered if isinstance(answered, bytes) else json.dumps(answered).encode()

    def _reply(self, method: str, path: list[str], body: bytes, kind: str) -> tuple[int, Any]:
        match method, path:
            case "POST", ["chat", "completions"]:
                self.direct += 1
                made = self.answer(json.loads(body))
                return made.status, made.body
            case "POST", ["files"]:
                identity = f"file-{len(self.files)}"
                self.files[identity] = _content(body, kind)
                return 200, {"id": identity, "object": "file", "bytes": 1, "created_at": 1, "filename": "f.jsonl",
                             "purpose": "batch", "status": "processed"}  # fmt: skip
            case "GET", ["files", identity, "content"]:
                return 200, self.files[identity]
            case "DELETE", ["files", identity]:
                self.deleted.append(identity)
                return 200, {"id": identity, "object": "file", "deleted": True}
            case "POST", ["batches"]:
                if self.refusals:
                    status, message = self.refusals.pop(0)
                    return status, {"error": {"message": message, "type": "error", "code": None}}
                return 200, self._created(json.loads(body))
            case "GET", ["batches"]:
                newest = sorted(self.batches.values(), key=lambda batch: -batch["created_at"])
                return 200, {"object": "list", "data": newest, "has_more": False}
            case "GET", ["batches", identity]:
                self.looked[identity] += 1
                if self.looked[identity] >= self.looks and self.batches[identity]["status"] == "in_progress":
                    self._ended(self.batches[identity])
                return 200, self.batches[identity]
            case "POST", ["batches", identity, "cancel"]:
                self._ended(self.batches[identity] | {"status": "cancelled"}, run=0)
                return 200, self.batches[identity]
            case _, ["messages", "batches", *rest]:
                return self._of_messages(method, rest, body)
        return 404, {"error": {"message": "not found"}}

    def _of_messages(self, method: str, path: list[str], body: bytes) -> tuple[int, Any]:
        """Anthropic's batches."""
        match method, path:
            case "POST", []:
                identity = f"msgbatch_{len(self.batches)}"
                requests = json.loads(body)["requests"]
                self.submitted.update(json.dumps(one["params"], sort_keys=True) for one in requests)
                counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
                self.batches[identity] = {"id": identity, "type": "message_batch", "processing_status": "in_progress",
                    "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "expires_at": "2030-01-01T00:00:00Z",
                    "request_counts": counts | {"processing": len(requests)}, "sent": requests}  # fmt: skip
            case "GET", []:
                return 200, {"data": [*reversed(self.batches.values())], "has_more": False}
            case "GET", [identity]:
                self.looked[identity] += 1
                if self.looked[identity] >= self.looks:
                    url = f"{self.base_url}/messages/batches/{identity}/results"
                    self.batches[identity] |= {"processing_status": "ended", "results_url": url}
            case "GET", [identity, "results"]:
                lines = [_message(one, number) for number, one in enumerate(self.batches[identity]["sent"])]
                return 200, "".join(f"{json.dumps(line)}\n" for line in reversed(lines)).encode()
            case "DELETE", [identity]:
                self.deleted.append(identity)
                return 200, {"id": identity, "type": "message_batch_deleted"}
        return 200, self.batches[identity]

    def _created(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
        self.submitted.update(json.dumps(line["body"], sort_keys=True) for line in lines)
        identity = f"batch_{len(self.batches)}"
        counts = {"total": len(lines), "completed": 0, "failed": 0}
        self.batches[identity] = asked | {"id": identity, "object": "batch", "status": "in_progress",
                                          "created_at": int(time.time()), "request_counts": counts}  # fmt: skip
        return self.batches[identity]

    def _ended(self, batch: dict[str, Any], run: int | None = None) -> None:
        lines = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()][:run]
        batch["status"] = "completed" if batch["status"] == "in_progress" else batch["status"]
        answered: Lines = []
        failed: Lines = []
        for line in lines:
            made = self.answer(line["body"])
            response = {"status_code": made.status, "request_id": "req", "body": made.body}
            entry = {"id": "r", "custom_id": line["custom_id"], "response": response, "error": None}
            (answered if made.status == 200 else failed).append(entry)
        if self.end is not None:
            answered = self.end(batch, answered)
        for name, entries, write in (("output", answered, self.result), ("error", failed, as_lines)):
            if entries:
                batch[f"{name}_file_id"] = f"file-{len(self.files)}"
                self.files[batch[f"{name}_file_id"]] = write(entries).encode()
        batch["request_counts"] |= {"completed": len(answered), "failed": len(failed)}
        self.batches[batch["id"]] = batch


def _message(one: dict[str, Any], number: int) -> dict[str, Any]:
    """A result as Anthropic writes it: of every tenth request none, of the one behind it an error."""
    result: dict[str, Any] = {"type": "expired"}
    if number % 10 == 4:
        error = {"type": "overloaded_error", "message": "Overloaded"}
        result = {"type": "errored", "error": {"type": "error", "error": error, "request_id": "r"}}
    elif number % 10 != 3:
        usage = {"input_tokens": 10, "output_tokens": 5}
        result = {"type": "succeeded", "message": {"id": "m", "type": "message", "role": "assistant", "model": "claude",
            "content": [{"type": "text", "text": "yes"}], "stop_reason": "end_turn", "usage": usage}}  # fmt: skip
    return {"custom_id": one["custom_id"], "result": result}


def as_lines(entries: Lines) -> str:
    """The results, in another order than the requests."""
    return "".join(f"{json.dumps(entry)}\n" for entry in reversed(entries))


def _content(body: bytes, kind: str) -> bytes:
    """The file in a form with several parts."""
    boundary = b"--" + kind.partition("boundary=")[2].strip('"').encode()
    part = next(part for part in body.split(boundary) if b'name="file"' in part)
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


@contextmanager
def serve_batches(endpoint: BatchEndpoint) -> Iterator[BatchEndpoint]:
    """Serve an endpoint on a free port of loopback in this block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            size, coded = int(self.headers.get("content-length") or 0), self.headers.get("transfer-encoding")
            endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
            body = self._chunks() if coded == "chunked" else self.rfile.read(size)
            try:
                status, answer = endpoint.reply(self.command, self.path, body, self.headers.get("content-type") or "")
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except ConnectionError:  # the client has gone
                self.close_connection = True

        do_GET = do_POST = do_DELETE = do_OPTIONS = _handle  # noqa: N815 (named by http.server)

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing of clients that were killed."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
