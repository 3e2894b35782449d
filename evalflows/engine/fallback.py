"""A judge's fallback, which judges while the endpoint of the first is down."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Any

from evalflows.engine.results import EvaluationResult
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.workers import run_sync
from evalflows.llm import loop
from evalflows.llm.breaker import COUNTED

MAX_FALLBACK_THREADS = 64
"""Maximum number of sync fallbacks that run at the same time in this process."""

Call = Callable[[RunnableEvaluator, Mapping[str, Any]], Coroutine[Any, Any, list[EvaluationResult]]]
"""How an evaluator is called on one subject."""


def is_down(outcome: EvaluationResult) -> bool:
    """Return whether a judgement failed or was not attempted because its endpoint is down."""
    return outcome.error_kind in COUNTED | {"stopped"}


async def judge_by_fallback(
    call: Call,
    fallback: RunnableEvaluator,
    available: Mapping[str, Any],
    first: list[EvaluationResult],
    *,
    first_is_async: bool,
) -> list[EvaluationResult]:
    """Return the results of `call` with the fallback; if it is down too, the first ones with both errors."""
    outcomes = await _call_fallback(call, fallback, available, is_async=first_is_async)
    name = fallback.spec.use
    if all(is_down(outcome) for outcome in outcomes):
        return [
            result._replace(error=f"{result.error}; fallback {name} also failed: {outcomes[0].error}")
            for result in first
        ]
    return [outcome._replace(decided_by=f"fallback {name}") for outcome in outcomes]


async def _call_fallback(
    call: Call, fallback: RunnableEvaluator, available: Mapping[str, Any], *, is_async: bool
) -> list[EvaluationResult]:
    """Call the fallback from where the first evaluator ran: on the event loop if that is async, else on a thread.

    A sync fallback would block the loop that makes its calls, so it runs on a thread; an async one needs the loop.
    """
    if fallback.bound.is_async == is_async:
        return await call(fallback, available)
    if fallback.bound.is_async:
        return loop.run(call(fallback, available))
    work = partial(copy_context().run, run_sync, call(fallback, available))
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of sync fallbacks. The loop's own threads would deadlock: they resolve addresses for the same calls."""
    return ThreadPoolExecutor(MAX_FALLBACK_THREADS, thread_name_prefix="evalflows-fallbacks")
