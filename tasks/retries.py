"""Which failures Prefect retries, and when."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.chunks import Chunk
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.tally import Stage, Tally
from evalflows.llm import loop
from evalflows.llm.breaker import Breaker, give_back, reserve
from evalflows.specs.errors import kinds_in_words

LONGEST_PAUSE_S = 60.0
"""Longest pause of a breaker, in seconds, for which a retry waits. After a longer one the run is better resumed."""

CHECK_INTERVAL_S = 0.1
"""Interval at which a chunk checks whether another one's trial has ended."""


class TransientFailuresError(Exception):
    """Some calls of a chunk failed, and a retry may succeed."""


def retries_of(spec: AnySpec) -> dict[str, Any]:
    """Return the task options for chunks: the number of retries, and the delay before each."""
    delays = [spec.chunk_retry_delay_s * 2.0**retry for retry in range(spec.chunk_retries)]
    return {"retries": spec.chunk_retries, "retry_delay_seconds": delays}


def is_last_attempt() -> bool:
    """Return whether Prefect will not retry this task, so that failures must be stored as they are."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def is_retry() -> bool:
    """Return whether this task was tried before."""
    context = TaskRunContext.get()
    return context is not None and context.task_run.run_count > 1


def retry_later(tally: Tally, failed: Mapping[Any, Counter[str]], stage: Stage, items: str) -> NoReturn:
    """Let Prefect retry a task after its delay, and show in the progress how many items of each chunk failed.

    Prefect logs why: `3 of 40 answers failed: 2 rate limited, 1 timeout`. Texts of providers may quote data, so only
    the kinds of error are named. `failed` has the number of failures by chunk and kind; `items` are all items, in
    words.
    """
    context = TaskRunContext.get()
    delays = context.task.retry_delay_seconds if context else None
    assert context is not None and isinstance(delays, list)
    for chunk, kinds in failed.items():
        tally.postpone(chunk, stage, kinds.total(), delays[min(context.task_run.run_count, len(delays)) - 1])
    of_all = sum(failed.values(), Counter())
    raise TransientFailuresError(f"{of_all.total()} {items} failed: {kinds_in_words(of_all)}")


@contextmanager
def admit_trial(tally: Tally, chunks: Sequence[Chunk], stage: Stage, breakers: Sequence[Breaker]) -> Iterator[None]:
    """Let one chunk at a time make the trial that an open breaker admits, in this block.

    The others wait for its result: their items would be stopped, and would use up a retry. A retry waits for the
    breakers' pauses first: before their ends, nothing would be called.
    """
    owner = object()
    try:
        while (wait_s := _pause_s(breakers)) or not reserve(breakers, owner):
            if wait_s:
                for chunk in chunks:
                    tally.extend(chunk, stage, wait_s)
            loop.run(asyncio.sleep(wait_s or CHECK_INTERVAL_S))
        yield
    finally:
        give_back(breakers, owner)


def breakers_to_wait_for(evaluators: Iterable[RunnableEvaluator]) -> list[Breaker]:
    """Return the breakers that a chunk waits for. A fallback judges at once; only if it failed too, the chunk waits."""
    waiting = [evaluator for evaluator in evaluators if evaluator.fallback is None or is_retry()]
    return [tier.breaker for evaluator in waiting for tier in evaluator.tiers or (evaluator,)]


def _pause_s(breakers: Iterable[Breaker]) -> float:
    """Return for how long a retry waits until all breakers admit an item."""
    pause_s = max((breaker.pause_left_s for breaker in breakers), default=0.0)
    return pause_s if is_retry() and pause_s <= LONGEST_PAUSE_S else 0.0


def only_transient(task: Task[..., object], run: TaskRun, state: State[object]) -> bool:
    """Prefect's retry condition: retry chunks with transient failures, but not errors in our own code."""
    return isinstance(state.data, TransientFailuresError)
