"""A receiver in a process of its own, and clients that load it and remember what was answered."""

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from otlp_requests import span, traces

PROTOBUF = "application/x-protobuf"


@dataclass
class Running:
    """A receiver that listens."""

    process: subprocess.Popen[str]
    url: str

    def stop(self) -> str:
        """End it as a service manager does, and return what it printed."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        output = self.process.stdout.read()  # `communicate` would leave out what was read with the first line
        self.process.wait(timeout=120)
        return output

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def start(store: Path, *arguments: str, prefix: Sequence[str] = ()) -> Running:
    """Start a receiver on a free port."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-P", "-m", "evalflows.cli.main", "receive", "--port", "0", *arguments],
        env=os.environ | {"EVALFLOWS_STORE": str(store), "EVALFLOWS_SPOOL": f"{store}-spool"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "receiving" in first, first + process.stdout.read()
    return Running(process, first.split(" at ")[1].split(",")[0])


@contextmanager
def receiving(store: Path, *arguments: str, prefix: Sequence[str] = ()) -> Iterator[Running]:
    """Start a receiver, and stop it at the end of the block, if that has not."""
    running = start(store, *arguments, prefix=prefix)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


class Batches:
    """Requests of the same spans with ever new ids: a model call with about a kilobyte of messages each."""

    def __init__(self, spans: int) -> None:
        messages = [{"role": "user", "parts": [{"type": "text", "content": "word " * 100}]}]
        answers = [{"role": "assistant", "parts": [{"type": "text", "content": "word " * 50}]}]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "a-model",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.conversation.id": "a-session",
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps(answers),
        }
        ids = [(secrets.token_bytes(16), secrets.token_bytes(8)) for _ in range(spans)]
        now = time.time_ns()
        request = traces(
            *(
                span(trace_id=trace.hex(), span_id=own.hex(), attributes=attributes, start=now, end=now + 10**9)
                for trace, own in ids
            ),
            resource={"service.name": "shop"},
        )
        self.body = request.SerializeToString()
        self._places = [(self.body.index(trace), self.body.index(own)) for trace, own in ids]

    def make(self) -> tuple[bytes, list[str]]:
        """Return a body with new ids, and the ids of its spans."""
        body, spans = bytearray(self.body), []
        drawn = os.urandom(24 * len(self._places))
        for number, (trace, own) in enumerate(self._places):
            fresh = drawn[24 * number : 24 * number + 24]
            body[trace : trace + 16], body[own : own + 8] = fresh[:16], fresh[16:]
            spans.append(fresh[16:].hex())
        return bytes(body), spans


@dataclass
class Load:
    """Clients that send as fast as they are answered, each over one connection."""

    batches: Batches
    clients: int = 4
    keep_ids: bool = True
    sent: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    n_answered: int = 0
    statuses: set[int] = field(default_factory=set)

    @contextmanager
    def on(self, url: str, most: float = float("inf")) -> Iterator[None]:
        """Send during the block; of `most` spans, none is left when the block has ended."""
        stopping, lock = threading.Event(), threading.Lock()
        left = [most]

        def send() -> None:
            address = urlsplit(url)
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
            with suppress(OSError, http.client.HTTPException):  # the receiver was killed
                while not stopping.is_set():
                    body, spans = self.batches.make()
                    with lock:
                        if left[0] <= 0:
                            return
                        left[0] -= len(spans)
                        if self.keep_ids:
                            self.sent += spans
                    connection.request("POST", "/v1/traces", body, {"content-type": PROTOBUF})
                    response = connection.getresponse()
                    response.read()
                    with lock:
                        self.statuses.add(response.status)
                        if response.status == 200:
                            self.n_answered += len(spans)
                            if self.keep_ids:
                                self.answered += spans
            connection.close()

        threads = [threading.Thread(target=send) for _ in range(self.clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            if most == float("inf"):
                stopping.set()
            for thread in threads:
                thread.join()


@dataclass(frozen=True)
class Kept:
    """What became of the spans of a load."""

    sent: int
    answered: int
    stored: int
    lost: int  # answered 200, and not stored
    doubled: int


def kill_repeatedly(store: Path, times: int, load: Load, seconds: Sequence[float]) -> Kept:
    """Kill a receiver under load that many times, each time after some seconds, and return what became of the spans."""
    for number in range(times):
        running = start(store)
        with load.on(running.url):
            time.sleep(seconds[number % len(seconds)])
            running.kill()
    with receiving(store):
        pass  # writes what the killed ones have left
    from evalflows.store import connect

    with connect(store) as catalog:
        rows = catalog.execute("select span_id, count(*) from observations group by all").fetchall()
    stored = {span for span, _ in rows}
    return Kept(
        sent=len(load.sent),
        answered=len(load.answered),
        stored=len(rows),
        lost=len({*load.answered} - stored),
        doubled=sum(count - 1 for _, count in rows),
    )
