"""The time limit of async code: what counts, what does not, and whose time-out and whose cancel it was."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from evalflows.engine.judgement import call_within
from evalflows.evaluators.binding import bind
from evalflows.specs.errors import CallError

LATE = "took longer than 0.1 s and was stopped"


def judged(function: Callable[..., Any], timeout_s: float = 0.1, **asks: Callable[..., Any]) -> Any:
    """What an evaluator returns within its time."""

    async def run() -> Any:
        return await call_within(timeout_s, bind(function), {"outputs": "a", "complete": None, "embed": None} | asks)

    return asyncio.run(run())


def is_late(function: Callable[..., Any], timeout_s: float = 0.1, **asks: Callable[..., Any]) -> bool:
    """Whether it was ended, with the right words and in good time."""
    began = time.monotonic()
    with pytest.raises(CallError) as caught:
        judged(function, timeout_s, **asks)
    assert time.monotonic() - began < 5
    return (caught.value.kind, str(caught.value)) == ("too_slow", f"took longer than {timeout_s:g} s and was stopped")


async def complete(seconds: float) -> str:
    """A model that takes so long."""
    await asyncio.sleep(seconds)
    return f"after {seconds:g} s"


def test_what_takes_longer_is_ended_and_what_it_says_then_comes_too_late() -> None:
    ended: list[bool] = []

    async def stubborn(outputs: str) -> bool:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(True)
        return True

    assert is_late(stubborn)
    assert ended == [True], "it was told, and could clean up"


def test_many_at_once_have_each_their_own_time() -> None:
    async def sleeps(outputs: float) -> float:
        await asyncio.sleep(outputs)
        return outputs

    async def run() -> list[Any]:
        times = [3600.0, 0.0, 3600.0, 0.01]
        each = (call_within(0.1, bind(sleeps), {"outputs": seconds}) for seconds in times)
        return await asyncio.gather(*each, return_exceptions=True)

    found = asyncio.run(run())
    assert [found[1], found[3]] == [0.0, 0.01]
    assert [str(found[0]), str(found[2])] == [LATE, LATE]


def test_what_it_raises_itself_is_its_own_also_a_time_out() -> None:
    async def raises(outputs: str) -> bool:
        await asyncio.sleep(0)
        raise error

    async def impatient(outputs: str) -> bool:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
        return True

    for error in (TimeoutError("mine"), ValueError("mine"), CallError("timeout", "mine")):
        with pytest.raises(type(error)) as caught:
            judged(raises)
        assert caught.value is error
    with pytest.raises(TimeoutError):
        judged(impatient, timeout_s=5)


@pytest.mark.parametrize("while_asking", [False, True])
def test_a_cancel_from_outside_stays_one(while_asking: bool) -> None:
    async def waits(outputs: str, complete: Any) -> bool:
        await (complete(3600) if while_asking else asyncio.sleep(3600))
        return True

    async def run() -> None:
        task = asyncio.ensure_future(call_within(60, bind(waits), {"outputs": "a", "complete": complete}))
        await asyncio.sleep(0.02)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_to_wait_for_a_model_does_not_count_also_for_several_at_once() -> None:
    async def asks(outputs: str, complete: Any, embed: Any) -> list[str]:
        return [await complete(0.2), *await asyncio.gather(*(embed(seconds) for seconds in (0.05, 0.3, 0.15)))]

    said = [f"after {seconds} s" for seconds in (0.2, 0.05, 0.3, 0.15)]
    assert judged(asks, complete=complete, embed=complete) == said


def test_the_time_between_two_askings_is_added_up() -> None:
    async def asks(outputs: str, complete: Any) -> bool:
        for _ in range(4):
            await complete(0.05)
            await asyncio.sleep(0.06)
        return True

    assert is_late(asks, timeout_s=0.1, complete=complete), "4 times 0.06 s are more than 0.1 s"
    assert judged(asks, timeout_s=1.0, complete=complete)


def test_a_call_that_fails_lets_the_time_go_on_and_its_error_is_its_own() -> None:
    async def fails(*args: Any) -> str:
        await asyncio.sleep(0.15)
        raise CallError("rate_limited", "too many")

    async def asks(outputs: str, complete: Any) -> bool:
        await complete("a")
        return True

    async def asks_and_sleeps(outputs: str, complete: Any) -> bool:
        try:
            await complete("a")
        except CallError:
            await asyncio.sleep(3600)
        return True

    with pytest.raises(CallError) as caught:
        judged(asks, complete=fails)
    assert caught.value.kind == "rate_limited"
    assert is_late(asks_and_sleeps, complete=fails)
