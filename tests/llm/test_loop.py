"""The event loop that runs the calls."""

import asyncio
from concurrent.futures import CancelledError
from contextvars import ContextVar, copy_context

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


def test_a_block_that_raises_ends_what_runs_and_what_its_threads_would_begin() -> None:
    ended: list[bool] = []

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(ZeroDivisionError), loop.ends_with():
        future = loop.start(long())
        loop.run(asyncio.sleep(0.01))
        thread = copy_context()
        raise ZeroDivisionError
    with pytest.raises(CancelledError):
        future.result(5)
    assert ended == [True]
    for begin in (lambda: loop.run(look()), loop.raise_if_stopped):
        with pytest.raises(CancelledError):
            thread.run(begin)
    assert loop.run(look()) == "nothing", "what comes after the block runs"
