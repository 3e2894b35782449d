"""Retries in place: which faults are retried, how often, and after how long a wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import get_args

import pytest

from evalflows.llm import attempts
from evalflows.llm.attempts import LONGEST_PAUSE_S, RETRYABLE, Attempts, pause_s
from evalflows.llm.endpoint_errors import http_status_kind
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.rate_limits import retry_after_s
from evalflows.specs.errors import CallError, ErrorKind

KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
WHO = "connection 'mock' (http://127.0.0.1)"
FINAL = sorted({*KINDS} - RETRYABLE)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.0001)


def failing(*errors: BaseException) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    """Return a function that raises these in turn and then succeeds, and a list with one entry per call."""
    calls: list[int] = []

    async def once() -> str:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return "done"

    return once, calls


def faulty(kinds: Iterable[ErrorKind]) -> list[CallError]:
    return [CallError(kind, f"fault {number}") for number, kind in enumerate(kinds, start=1)]


async def retried(once: Callable[[], Awaitable[str]], most: int = 4, most_s: float = 600.0) -> tuple[str, int]:
    attempts = Attempts(most, WHO, most_s)
    while True:
        async with attempts:
            return await once(), attempts.made


def attempt(once: Callable[[], Awaitable[str]], most: int = 4) -> tuple[str, int]:
    return asyncio.run(retried(once, most))


def failure(once: Callable[[], Awaitable[str]], most: int = 4) -> CallError:
    with pytest.raises(CallError) as caught:
        attempt(once, most)
    return caught.value


@pytest.mark.parametrize("kind", FINAL)
def test_a_fault_that_cannot_pass_is_raised_at_once(kind: ErrorKind) -> None:
    once, calls = failing(*faulty([kind]))
    raised = failure(once)
    assert (raised.kind, raised.attempts, len(calls)) == (kind, 1, 1)


@pytest.mark.parametrize("error", [RuntimeError("ours"), KeyError("x"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_a_call_is_raised_at_once(error: BaseException) -> None:
    once, calls = failing(error)
    with pytest.raises(type(error)):
        attempt(once)
    assert len(calls) == 1


def test_the_wait_that_was_asked_for_is_kept_but_not_after_the_last_attempt() -> None:
    once, _ = failing(CallError("rate_limited", "slow down", retry_after_s=0.1))
    began = time.monotonic()
    attempt(once)
    assert time.monotonic() - began >= 0.1
    once, calls = failing(*(CallError("rate_limited", "slow down", retry_after_s=wait) for wait in (0.0, 3600.0)))
    assert failure(once, 2).attempts == len(calls) == 2


def test_a_long_wait_is_said_once_for_all_calls_of_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    async def all_at_once() -> None:
        waits = (10_800.0, 90.0, 59.0)
        asked = (failing(CallError("rate_limited", "HTTP 429: daily limit", retry_after_s=wait))[0] for wait in waits)
        await asyncio.gather(*(retried(once, 2, 0.01) for once in asked))

    with recording(Recorder(keep=[].append)):
        asyncio.run(all_at_once())
    said = f"evalflows: {WHO} asks to wait 3.0 h (HTTP 429: daily limit); its calls are made again in 0 s, at "
    assert capsys.readouterr().err.startswith(said)


def test_a_wait_that_is_broken_off_ends_the_attempts() -> None:
    once, calls = failing(CallError("rate_limited", "slow down", retry_after_s=3600.0))

    async def broken_off() -> None:
        task = asyncio.ensure_future(retried(once))
        while not calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(broken_off())
    assert len(calls) == 1


# How long


def pauses(attempt: int, retry_after: float | None = None) -> list[float]:
    return [pause_s(attempt, retry_after, 600.0) for _ in range(200)]


def test_pauses_double_with_jitter_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.5)
    for number, base in ((1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, LONGEST_PAUSE_S), (99, LONGEST_PAUSE_S)):
        found = pauses(number)
        assert 0.5 * base <= min(found) < max(found) <= 1.5 * base


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after-ms": "-3", "retry-after": "9"}, 9.0),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "604801"}, None),
        ({"retry-after": "1e308"}, None),
        ({"retry-after": "Thu, 31 Dec 2099 23:59:59 GMT"}, None),
        ({"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "inf", "retry-after": "2"}, 2.0),
    ],
    ids=str,
)
def test_a_response_may_say_how_long_to_wait(headers: dict[str, str], wanted: float | None) -> None:
    assert retry_after_s(headers) == wanted


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (403, "authentication"),
        (408, "timeout"),
        (409, "server_error"),
        (424, "server_error"),
        (425, "server_error"),
        (498, "rate_limited"),
        (402, "quota_exhausted"),
        (413, "context_too_long"),
        (429, "rate_limited"),
        (504, "server_error"),
        (529, "rate_limited"),
        (301, "bad_request"),
    ],
)
def test_a_status_says_whether_another_attempt_may_cure_it(status: int, kind: ErrorKind) -> None:
    assert http_status_kind(status) == kind


def test_calls_that_wait_for_their_next_attempt_are_counted() -> None:
    recorder = Recorder(keep=[].append)

    async def seen_meanwhile() -> tuple[int, float]:
        once, _ = failing(CallError("rate_limited", "slow down", retry_after_s=0.3))
        waiting = asyncio.ensure_future(retried(once))
        await asyncio.sleep(0.05)
        seen = recorder.calls.waits()
        await waiting
        return seen

    with recording(recorder):
        waiting, seconds = asyncio.run(seen_meanwhile())
    assert waiting == 1 and 0.0 < seconds <= 0.33
    assert recorder.calls.waits() == (0, 0.0)
