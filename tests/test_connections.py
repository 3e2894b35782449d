"""Connections of the dashboard and the receiver: who sends nothing, or half of a request, keeps nobody out."""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from evalflows import serving
from evalflows.receiver import Receiver
from evalflows.store.store import Store

HEAD = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[bytes], Awaitable[Streams]]


LARGE = 30 << 20


async def _answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(bytes(LARGE) if await request.body() == b"large" else b"")


APPLICATION = Starlette(routes=[Route("/", _answer, methods=["POST"])])


def served(trial: Callable[[Connect], Awaitable[None]], application: Starlette = APPLICATION) -> None:
    """Run a trial against a server, with a function that connects and sends something."""

    async def run() -> None:
        with serving.listen("127.0.0.1", 0, has_token=False) as listener:
            server = serving.server_of(application, 1)
            running = asyncio.create_task(server.serve([listener]))

            async def connect(sent: bytes) -> Streams:
                streams = await asyncio.open_connection(*listener.getsockname())
                streams[1].write(sent)
                return streams

            await trial(connect)
            server.should_exit = True
            await running

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_S", "REQUEST_S", "IDLE_S", "STALLED_S"):
        monkeypatch.setattr(serving, name, 0.4)
    monkeypatch.setattr(serving, "_REPEATS", serving._Repeats())


def test_what_does_not_arrive_in_time_ends_the_connection() -> None:
    async def answer_to(connect: Connect, sent: bytes) -> bytes:
        reader, writer = await connect(sent[:-3])
        for byte in sent[-3:]:  # uvicorn takes each for a sign of life
            await asyncio.sleep(0.05)
            writer.write(bytes([byte]))
        return (await asyncio.wait_for(reader.read(), 10))[:13]

    async def trial(connect: Connect) -> None:
        whole = HEAD + b"\r\nabcde"
        sent = b"", HEAD, HEAD + b"\r\n", whole, whole + HEAD
        answers = await asyncio.gather(*(answer_to(connect, one) for one in sent))
        assert answers == [b"", b"HTTP/1.1 408 ", b"", b"HTTP/1.1 200 ", b"HTTP/1.1 200 "]

    served(trial)


def test_a_client_that_does_not_read_its_answer_is_ended() -> None:
    async def trial(connect: Connect) -> None:
        reader, _ = await connect(HEAD + b"\r\nlarge")
        received = len(await asyncio.wait_for(reader.read(1), 10))  # the answer has begun
        await asyncio.sleep(0.6)
        with suppress(ConnectionError):
            while piece := await asyncio.wait_for(reader.read(1 << 20), 10):
                received += len(piece)
        assert received < LARGE

    served(trial)


def test_a_token_is_checked_before_the_body_is_asked_for(store: Store) -> None:
    receiver = Receiver(store, token="secret")

    async def trial(connect: Connect) -> None:
        reader, _ = await connect(
            b"POST /v1/traces HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
        )
        assert await reader.read(13) == b"HTTP/1.1 401 ", "not 100"

    served(trial, receiver.application())
    receiver.stop()


def test_connections_that_send_nothing_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("HEAD_S", "REQUEST_S", "IDLE_S"):
        monkeypatch.setattr(serving, name, 20)
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 20)

    async def trial(connect: Connect) -> None:
        (slow, body), *silent = [await connect(HEAD + b"\r\nab"), *[await connect(HEAD) for _ in range(40)]]
        reader, _ = await connect(HEAD + b"\r\nabcde")
        assert (await reader.read(13)) == b"HTTP/1.1 200 "
        body.write(b"cde")
        assert (await slow.read(13)) == b"HTTP/1.1 200 ", "it had begun to send before all the others"
        ended = [reader for reader, _ in silent if reader.at_eof() or reader.exception()]
        assert len(ended) == 40 + 2 - 20 // 2, "one client has half of all"

    served(trial)
    printed = [line for line in capfd.readouterr().err.splitlines() if "too many connections" in line]
    assert [line[10:] for line in printed] == [
        "too many connections: 127.0.0.1 has 10 connections; those that send nothing are ended"
    ]


def test_half_bodies_keep_out_nobody_of_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy, those who have only just connected come from the same address."""
    for name in ("HEAD_S", "REQUEST_S", "IDLE_S"):
        monkeypatch.setattr(serving, name, 20)
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 40)

    async def trial(connect: Connect) -> None:
        half = [await connect(HEAD + b"\r\nab") for _ in range(30)]
        await asyncio.sleep(0.05)
        others = [await connect(b"") for _ in range(5)]
        half += [await connect(HEAD + b"\r\nab") for _ in range(5)]
        await asyncio.sleep(0.05)
        for reader, writer in others:
            writer.write(HEAD + b"\r\nabcde")
            assert (await reader.read(13)) == b"HTTP/1.1 200 "
        ended = [reader.at_eof() or reader.exception() is not None for reader, _ in half]
        assert ended == [True] * 20 + [False] * 15, "the oldest"

    served(trial)


def test_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    named = {serving._network(address) for address in ("2001:db8::1", "2001:db8::ffff", "2001:db8:0:0:9::1")}
    assert named == {"2001:db8::/64"}
    assert serving._network("::ffff:192.0.2.1") == serving._network("192.0.2.1") == "192.0.2.1"


def test_a_process_without_files_to_open_accepts_few_connections_before_it_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would log an error for each of thousands that wait, each second."""
    tried = []

    class Full(socket.socket):
        def accept(self) -> Any:
            tried.append(1)
            raise OSError(errno.EMFILE, "Too many open files")

    async def trial(connect: Connect) -> None:
        await connect(HEAD)
        await asyncio.sleep(0.05)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Full)
        served(trial)
    assert 0 < len(tried) <= serving.ACCEPTED_AT_ONCE


def test_repeated_messages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats, now = serving._Repeats(), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def shown(text: str) -> str | None:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), None)
        return record.getMessage() if repeats.filter(record) else None

    assert [shown("full\nsocket 1"), shown("full\nsocket 2"), shown("other")] == ["full\nsocket 1", None, "other"]
    now += 61
    assert shown("full") == "full (and 1 more since the last one)"
