"""Retries in place: which faults are retried, how often, and after how long a wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, get_args

import pytest

from evalflows.llm import attempts
from evalflows.llm.attempts import LONGEST_PAUSE_S, RETRYABLE, calls_waiting, pause_s, retry
from evalflows.llm.faults import http_status_kind
from evalflows.llm.rate_limit_headers import retry_after_s
from evalflows.specs.errors import CallError, ErrorKind

KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
PASSING = sorted(RETRYABLE)
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


def attempt(once: Callable[[], Awaitable[str]], most: int = 4) -> tuple[str, int]:
    return asyncio.run(_awaited(retry(once, most)))


async def _awaited(what: Awaitable[Any]) -> Any:
    return await what


def failure(once: Callable[[], Awaitable[str]], most: int = 4) -> CallError:
    with pytest.raises(CallError) as caught:
        attempt(once, most)
    return caught.value


def test_what_succeeds_is_not_tried_again() -> None:
    once, calls = failing()
    assert attempt(once) == ("done", 1)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", PASSING)
def test_a_fault_that_may_pass_is_tried_again_until_it_has(kind: ErrorKind) -> None:
    once, calls = failing(*faulty([kind] * 3))
    assert attempt(once, 4) == ("done", 4)
    assert len(calls) == 4


@pytest.mark.parametrize("kind", PASSING)
def test_a_fault_that_does_not_pass_is_raised_with_the_number_of_attempts(kind: ErrorKind) -> None:
    once, calls = failing(*faulty([kind] * 9))
    raised = failure(once, 3)
    assert (raised.kind, str(raised), raised.attempts, len(calls)) == (kind, "fault 3", 3, 3)


@pytest.mark.parametrize("kind", FINAL)
def test_a_fault_that_cannot_pass_is_raised_at_once(kind: ErrorKind) -> None:
    once, calls = failing(*faulty([kind]))
    raised = failure(once)
    assert (raised.kind, raised.attempts, len(calls)) == (kind, 1, 1)


def test_a_final_fault_after_passing_ones_is_raised_with_all_attempts() -> None:
    once, calls = failing(*faulty(["timeout", "rate_limited", "authentication", "timeout"]))
    raised = failure(once, 9)
    assert (raised.kind, str(raised), raised.attempts, len(calls)) == ("authentication", "fault 3", 3, 3)


def test_one_attempt_is_one() -> None:
    once, calls = failing(*faulty(["timeout"]))
    assert failure(once, 1).attempts == len(calls) == 1


@pytest.mark.parametrize("error", [RuntimeError("ours"), KeyError("x"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_a_call_is_raised_at_once(error: BaseException) -> None:
    once, calls = failing(error)
    with pytest.raises(type(error)):
        attempt(once)
    assert len(calls) == 1


def test_the_wait_that_was_asked_for_is_kept() -> None:
    once, _ = failing(CallError("rate_limited", "slow down", retry_after_s=0.1))
    began = time.monotonic()
    attempt(once)
    assert time.monotonic() - began >= 0.1


def test_after_the_last_attempt_there_is_no_wait() -> None:
    once, calls = failing(*(CallError("rate_limited", "slow down", retry_after_s=wait) for wait in (0.0, 3600.0)))
    assert failure(once, 2).attempts == len(calls) == 2


def test_a_wait_that_is_broken_off_ends_the_attempts() -> None:
    once, calls = failing(CallError("rate_limited", "slow down", retry_after_s=3600.0))

    async def broken_off() -> None:
        task = asyncio.ensure_future(_awaited(retry(once, 4)))
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
    return [pause_s(attempt, retry_after) for _ in range(200)]


def test_pauses_double_with_jitter_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.5)
    for number, base in ((1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, LONGEST_PAUSE_S), (99, LONGEST_PAUSE_S)):
        found = pauses(number)
        assert 0.5 * base <= min(found) < max(found) <= 1.5 * base


@pytest.mark.parametrize("wait", [0.2, 1.0, 20.0])
def test_a_pause_is_no_shorter_than_was_asked_for_and_hardly_longer(wait: float) -> None:
    found = pauses(5, wait)
    assert wait <= min(found) < max(found) <= 1.1 * wait + 1e-9


def test_no_wait_may_be_asked_for() -> None:
    assert set(pauses(5, 0.0)) == {0.0}


@pytest.mark.parametrize("wait", [86_400.0, float("inf")])
def test_a_pause_is_never_longer_than_a_run_can_bear(wait: float) -> None:
    assert pause_s(1, wait) <= 3600


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after-ms": "inf", "retry-after": "2"}, 2.0),
        ({"x-retry-after": "2"}, None),
    ],
    ids=str,
)
def test_a_response_may_say_how_long_to_wait(headers: dict[str, str], wanted: float | None) -> None:
    assert retry_after_s(headers) == wanted


def test_a_response_may_say_until_when_to_wait() -> None:
    wait = retry_after_s({"retry-after": "Fri, 31 Dec 2999 23:59:59 GMT"})
    assert wait is not None and wait > 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (403, "authentication"),
        (404, "bad_request"),
        (405, "bad_request"),
        (408, "timeout"),
        (409, "server_error"),
        (402, "quota_exhausted"),
        (413, "context_too_long"),
        (422, "bad_request"),
        (429, "rate_limited"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
        (529, "server_error"),
        (301, "bad_request"),
        (304, "bad_request"),
    ],
)
def test_a_status_says_whether_another_attempt_may_cure_it(status: int, kind: ErrorKind) -> None:
    assert http_status_kind(status) == kind


def test_calls_that_wait_for_their_next_attempt_are_counted() -> None:
    async def seen_meanwhile() -> tuple[int, float]:
        once, _ = failing(CallError("rate_limited", "slow down", retry_after_s=0.3))
        retried = [asyncio.ensure_future(retry(once, 4)) for _ in range(1)]
        await asyncio.sleep(0.05)
        seen = calls_waiting()
        await asyncio.gather(*retried)
        return seen

    assert calls_waiting() == (0, 0.0)
    waiting, seconds = asyncio.run(seen_meanwhile())
    assert waiting == 1 and 0.0 < seconds <= 0.33
    assert calls_waiting() == (0, 0.0)
