"""An OpenAI-compatible endpoint on loopback that counts calls, answers by a hash of what is asked, and can fail."""

import asyncio
import hashlib
import json
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")
Request = dict[str, Any]


@dataclass
class Reply:
    """What the endpoint sends: a status, headers, and a body as JSON or as raw text."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # close the connection instead of answering
    drip_s: float = 0.0  # seconds between one byte of the body and the next


class Endpoint:
    """Counts what it saw. `answer` makes the reply to a request; replies in `faults` are sent first, one a call."""

    def __init__(self, latency_s: float = 0.0, answer: Callable[[Request], Reply] | None = None) -> None:
        self.latency_s = latency_s
        self.answer = answer or echo
        self.faults: deque[Reply] = deque()
        self.requests: list[Request] = []
        self.sent: list[tuple[Request, Reply]] = []  # what was asked, and the reply to it, where that was sent whole
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []  # names and values in lower case
        self.in_flight = 0
        self.peak = 0
        self.cap: int | None = None  # calls at once, beyond which one is refused at once
        self.refused = 0
        self.refusal_headers: dict[str, str] = {}
        self.base_url = ""
        self.connected: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def calls(self) -> int:
        return len(self.requests)

    def repeated(self) -> int:
        """How many calls asked what another had asked before."""
        counts = Counter(json.dumps(request, sort_keys=True) for request in self.requests)
        return sum(count - 1 for count in counts.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connected[task] = writer
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and await self._reply(head, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the endpoint ends
        finally:
            del self.connected[task]
            writer.close()

    async def _reply(self, asked: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if asked.startswith(b"OPTIONS "):  # opens a connection
            writer.write(b"HTTP/1.1 204 X\r\n\r\n")
            return True
        headers = dict(line.split(": ", 1) for line in asked.decode().lower().split("\r\n")[1:] if ": " in line)
        request = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        self.requests.append(request)
        self.paths.append(asked.decode().split(" ")[1])
        self.keys.append(headers.get("authorization"))
        self.headers.append(headers)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if self.cap is not None and self.in_flight > self.cap:
                self.refused += 1
                reply = error(429, "too many at once", headers=self.refusal_headers)
            else:
                reply = self.faults.popleft() if self.faults else self.answer(request)
                await asyncio.sleep(self.latency_s)
        finally:
            self.in_flight -= 1
        if reply.cut:
            return False
        body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
        lines = [f"HTTP/1.1 {reply.status} X", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in ({"content-type": "application/json"} | reply.headers).items()]
        head, dripping = "\r\n".join(lines).encode() + b"\r\n\r\n", len(body) - 1 if reply.drip_s else 0
        for place in range(dripping):
            writer.write(head + body[place : place + 1])
            head = b""
            await writer.drain()
            await asyncio.sleep(reply.drip_s)
        self.sent.append((request, reply))
        writer.write(head + body[dripping:])
        await writer.drain()
        return True


def completion(content: str | None, *, finish_reason: str = "stop", **message: Any) -> Reply:
    """A chat completion with this content."""
    return Reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "mock-1",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": content} | message,
                }
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )


def error(status: int, message: str, *, code: str | None = None, headers: dict[str, str] | None = None) -> Reply:
    """An error as OpenAI words it."""
    return Reply({"error": {"message": message, "type": "error", "code": code}}, status, headers or {})


def echo(request: Request) -> Reply:
    """The same answer to the same request, another to another: a number, or for a judge CORRECT three times in four."""
    number = int(hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest(), 16)
    if "CORRECT or INCORRECT" in json.dumps(request["messages"]):
        return completion("INCORRECT" if number % 4 == 0 else "CORRECT")
    return completion(f"answer {number % 1000}")


class Served:
    """An endpoint on a port of loopback, which can go down and come back."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._loop = endpoint, asyncio.new_event_loop()
        # Bound and never listening: it keeps the port, at which connections are refused while nobody else listens.
        self._held = _bound(0)
        self._port = self._held.getsockname()[1]
        endpoint.base_url = f"http://127.0.0.1:{self._port}/v1"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._run(self._listen())

    def kill(self) -> int:
        """Refuse connections and cut those there are, as if its process was killed. Return the calls then in flight."""
        return self._run(self._cut())

    def revive(self) -> None:
        """Listen again, at the same port."""
        self._server = self._run(self._listen())

    def close(self) -> None:
        self._run(self._cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._held.close()

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._endpoint._serve, sock=_bound(self._port))

    async def _cut(self) -> int:
        in_flight, connected = self._endpoint.in_flight, self._endpoint.connected.copy()
        self._server.close()
        for task, writer in connected.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*connected)
        return in_flight


def _bound(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    return one


@contextmanager
def outages(endpoint: Endpoint) -> Iterator[Served]:
    """Serve on a free port of loopback, with outages, until the block is left."""
    served = Served(endpoint)
    try:
        yield served
    finally:
        served.close()


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[Endpoint]:
    """Serve on a free port of loopback, until the block is left."""
    with outages(endpoint):
        yield endpoint


def main() -> None:
    """Serve in a process of its own, for benchmarks: the seconds a call takes come in, the address goes out."""
    with serving(Endpoint(latency_s=float(sys.argv[1]))) as endpoint:
        print(endpoint.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
