"""Answers are made a few at a time, and end when nobody waits for them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from dashboards import started
from production import produce, trace
from starlette.requests import Request
from starlette.types import Message

import evalflows.dashboard.app
from evalflows.dashboard.app import Taken, _file_content, application
from evalflows.dashboard.datasets import SentFile
from evalflows.dashboard.links import PAGE_PROOF, Proofs
from evalflows.dashboard.making import BusyError, Making
from evalflows.dashboard.rendering import Page, Query, Site
from evalflows.store.stop import Stop, StoppedError
from evalflows.store.store import Store

ENDLESS = "(select sum(a.range * b.range) from range(1000000) a, range(1000000) b where a.range + b.range > 5) > 0"


def wait(stop: Stop) -> str:
    """Work until it is stopped."""
    is_set = threading.Event()
    with stop.on_stop(is_set.set):
        assert is_set.wait(10)
    return "stopped"


async def gone() -> Message:
    """A client that goes after a moment."""
    await asyncio.sleep(0.05)
    return {"type": "http.disconnect"}


def test_a_file_is_read_until_its_client_goes() -> None:
    ended = list[str]()

    async def sent() -> None:
        messages: list[Message] = [{"type": "http.request", "body": b"rows"}]
        headers = [(PAGE_PROOF.encode(), proofs.of_page.encode()), (b"content-type", b"application/octet-stream")]
        scope = {"type": "http", "method": "POST", "path": "/datasets", "query_string": b"", "headers": headers}

        async def receive() -> Message:
            return messages.pop() if messages else await gone()

        await taken.answer(Request(scope, receive))

    def take(store: Store, query: Query, sent: SentFile) -> dict[str, Any]:
        ended.append(wait(sent.stop))
        return {}

    proofs = Proofs()
    taken = Taken(Store(), _file_content, take, Making(), proofs)
    asyncio.run(sent())
    assert ended == ["stopped"]


async def stays() -> Message:
    await asyncio.sleep(60)
    return {"type": "http.disconnect"}


def test_only_so_many_are_made_at_once_and_the_others_wait() -> None:
    async def made() -> None:
        making = Making(at_once=2, wait_s=0.2)
        first = [asyncio.create_task(making.run(wait, stays)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert making.is_busy
        with pytest.raises(BusyError, match=r"waited 0\.2 s for its turn"):
            await making.run(lambda _: "made", stays)
        with pytest.raises(StoppedError):
            await making.run(lambda _: "made", gone)  # left while it waited
        third = asyncio.create_task(making.run(wait, gone))
        making.stop()
        assert await asyncio.gather(*first) == ["stopped", "stopped"]
        with pytest.raises(StoppedError):
            await third
        assert not making.is_busy
        with pytest.raises(StoppedError):
            await making.run(lambda _: "made", stays)

    asyncio.run(made())


def test_places_are_given_back() -> None:
    async def made() -> None:
        making = Making(at_once=1, wait_s=5)
        assert await making.run(wait, gone) == "stopped"
        with pytest.raises(ZeroDivisionError):
            await making.run(lambda _: 1 // 0)
        assert await asyncio.gather(*(making.run(lambda _: "made", stays) for _ in range(20))) == ["made"] * 20

    asyncio.run(made())


def test_a_page_is_told_when_its_client_has_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def slow(site: Site, query: Query) -> Page:
        seen.append(wait(site.stop))
        raise StoppedError("stopped")

    monkeypatch.setattr(evalflows.dashboard.app, "PAGES", {"/slow": slow})
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/slow", "query_string": b"", "headers": headers}
    asyncio.run(application(store)(scope, gone, send))
    assert (seen, sent[0]["status"]) == (["stopped"], 503)


def address(url: str, where: str) -> str:
    """The address to which the form of the page Traces leads."""
    with urlopen(f"{url}/production/traces") as answer:
        proof = answer.read().decode().partition('name="proof" value="')[2].partition('"')[0]
    return f"/production/traces?where={quote(where)}&proof={proof}"


def ask(url: str, path: str) -> socket.socket:
    """Send a request, and return the connection."""
    connection = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return connection


def asked(url: str, where: str) -> socket.socket:
    """Send the request that the form of the page Traces leads to, and return the connection."""
    with ask(url, address(url, where)) as redirected:
        location = redirected.recv(10_000).decode().partition("location: ")[2].partition("\r\n")[0]
    return ask(url, location)


def busy_s(process: subprocess.Popen[str]) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_abandoned_query_ends_and_a_signal_ends_the_process_within_seconds(store: Store) -> None:
    produce(store, trace("a", "in", "out"))
    with started(Path(store.layout.root)) as (process, url):
        with asked(url, ENDLESS):
            time.sleep(1.0)
        time.sleep(0.5)
        before = busy_s(process)
        time.sleep(1.0)
        assert busy_s(process) - before < 0.3, "the query goes on"
        running = [asked(url, ENDLESS) for _ in range(2)]
        time.sleep(1.0)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert time.monotonic() - began < 5
        for connection in running:
            connection.close()
