"""The event loop that runs the calls."""

import asyncio
from concurrent.futures import CancelledError
from contextvars import ContextVar

import pytest

from evalflows.llm import loop

seen: ContextVar[str] = ContextVar("seen", default="nothing")


async def look() -> str:
    return seen.get()


def test_a_coroutine_sees_the_callers_context() -> None:
    token = seen.set("mine")
    assert loop.run(look()) == "mine"
    seen.reset(token)
    assert loop.run(look()) == "nothing"


def test_a_stop_ends_what_runs_and_what_would_begin_until_it_is_allowed_again() -> None:
    ended: list[bool] = []

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    future = loop.start(long())
    loop.run(asyncio.sleep(0.01))
    loop.stop()
    try:
        with pytest.raises(CancelledError):
            future.result(5)
        assert ended == [True]
        with pytest.raises(CancelledError):
            loop.run(look())
    finally:
        loop.allow()
    assert loop.run(look()) == "nothing"
