"""Posting to an application: the limit of concurrent requests."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from http_application import Application, cuts, failure, post, says, sends, spec, waits

from evalflows.llm import loop
from evalflows.llm.post import poster
from evalflows.llm.recorder import Recorder, recording
from evalflows.specs.errors import StorageError
from evalflows.specs.protocols import Posted


def all_at_once(application: Application, count: int, **settings: Any) -> list[Posted]:
    made = poster(spec(application, **settings))

    async def gathered() -> list[Posted]:
        return await asyncio.gather(*(made(number) for number in range(count)))

    return loop.run(gathered())


def slowly(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.02)
    says("late")(handler)


@pytest.mark.parametrize("width", [1, 3])
def test_concurrent_requests_stay_within_max_in_flight(application: Application, width: int) -> None:
    together = threading.Barrier(width, timeout=10)

    def reply(handler: BaseHTTPRequestHandler) -> None:
        together.wait()
        slowly(handler)

    application.replies.extend([reply] * 9)
    assert len(all_at_once(application, 9, max_in_flight=width)) == 9
    assert application.peak == width
    assert sorted(json.loads(body) for _, _, body in application.requests) == [*range(9)]


def test_targets_at_one_address_share_the_limit(application: Application) -> None:
    application.replies.extend([slowly] * 6)
    made = [poster(spec(application, name=name, max_in_flight=1)) for name in ("a", "b")]

    async def gathered() -> None:
        await asyncio.gather(*(one(number) for number in range(3) for one in made))

    loop.run(gathered())
    assert (application.peak, len(application.requests)) == (1, 6)


def test_latency_excludes_the_wait_for_the_limit(application: Application) -> None:
    application.replies.extend([slowly] * 5)
    began = time.monotonic()
    latencies = [posted.latency_s for posted in all_at_once(application, 5, max_in_flight=1)]
    assert sum(latency for latency in latencies if latency) <= time.monotonic() - began
    assert min(latency for latency in latencies if latency is not None) >= 0.02


def test_a_failed_request_frees_its_slot(application: Application) -> None:
    faulty = [sends(401, b""), cuts(b""), sends(200, b"{"), waits(application)]
    for fault in faulty:
        failure(application, fault, max_in_flight=1, attempts=1, timeout_s=1.0)
    assert post(application, says("Paris"), max_in_flight=1, timeout_s=1.0).response == "Paris"


def test_a_cancelled_request_frees_its_slot(application: Application) -> None:
    application.replies.append(waits(application))
    made = poster(spec(application, max_in_flight=1))

    async def broken_off() -> Posted:
        first, second = asyncio.ensure_future(made(1)), asyncio.ensure_future(made(2))  # type: ignore[arg-type]
        while not application.requests:
            await asyncio.sleep(0.001)
        first.cancel()
        return await asyncio.wait_for(second, 10)

    assert loop.run(broken_off()).response == {}


def test_a_request_that_waited_while_the_disk_failed_is_not_made(application: Application) -> None:
    made, full, failed = poster(spec(application, max_in_flight=1)), list[StorageError](), threading.Event()

    def reply(handler: BaseHTTPRequestHandler) -> None:
        failed.wait(10)
        says("Paris")(handler)

    def check() -> None:
        for error in full:
            raise error

    application.replies.append(reply)

    async def two() -> list[Posted | BaseException]:
        with recording(Recorder(keep=[].append, check=check)):
            both = [asyncio.ensure_future(made(number)) for number in range(2)]  # type: ignore[arg-type]
        while not application.requests:
            await asyncio.sleep(0.001)
        full.append(StorageError("/spool: No space left on device"))
        failed.set()
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = loop.run(two())
    assert isinstance(first, Posted) and second == full[0]
    assert len(application.requests) == 1
    full.clear()
    assert post(application, says("Paris"), max_in_flight=1).response == "Paris", "its slot is free"
