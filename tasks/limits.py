"""Limits of a run: slots of a Prefect limit across processes, parts of the budget for chunks elsewhere, and which
failures Prefect retries.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn, TypeVar

from prefect import Task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.concurrency.sync import concurrency
from prefect.context import TaskRunContext
from prefect.exceptions import ObjectNotFound

from evalflows.engine.chunks import AnySpec, Left, Part, Rounds, Stage, Started, Tally, dispatched, left_of, spent_by
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import RunnableEvaluator
from evalflows.llm import loop
from evalflows.llm.calls import Endpoint
from evalflows.llm.rate_limits import Breaker, Limiter, give_back, reserve
from evalflows.specs.errors import InputError, kinds_in_words
from evalflows.specs.running import ConnectionSpec, EndpointConnection
from evalflows.store.queries.progress import was_over_budget

OfRun = TypeVar("OfRun", bound=Rounds | Part)


def sent(
    run: RunContext[Any], rows: Sequence[Started], work: Sequence[OfRun], ahead: int | None = None
) -> Sequence[OfRun]:
    """Return the chunks of a run as they are sent to the processes of an engine; unchanged if it is threads.

    `rows` are those of its experiments, its comparison or its batch. `ahead` is the number of items in these and later
    chunks, if there are later ones: they have their share of the budget.
    """
    if not run.prepared.spec.task_runner.is_elsewhere or not work:
        return work
    attempt = min(row.recorded_at for row in rows if row.state == "running")
    chunks: list[Part] = [chunk for one in work for chunk in one.chunks]
    made: Iterator[Any] = iter(dispatched(run.store, chunks, attempt, _left(run, rows), ahead or items_of(work)))
    return [
        replace(one, chunks=tuple(islice(made, len(one.chunks)))) if isinstance(one, Rounds) else next(made)
        for one in work
    ]


def items_of(work: Iterable[Rounds | Part]) -> int:
    """Return the number of items in some chunks: runs, examples of pairs, or items of production."""
    return sum(chunk.n_items for one in work for chunk in one.chunks)


def short_of_budget(run: RunContext[Any], rows: Sequence[Started], work: Sequence[OfRun]) -> Sequence[OfRun]:
    """Return the chunks, given as they are, whose part of the budget was too small although some is left.

    What this process knew of the budget and of paid calls is dropped, since other processes have spent meanwhile.
    """
    if not run.prepared.spec.task_runner.is_elsewhere:
        return []
    run.reset()
    left = _left(run, rows)
    if not left.is_limited or left.is_spent:
        return []
    return [one for one in work if any(was_over_budget(run.store, chunk.owner, chunk.part) for chunk in one.chunks)]


def _left(run: RunContext[Any], rows: Sequence[Started]) -> Left:
    return left_of(run.prepared.spec, spent_by(run.store, rows[0]))


SHARES = 4
"""A chunk takes at most 1/SHARES of a limit, so that several chunks and flow runs can work side by side."""

LEASE_S = 60.0
"""Seconds after which the slots of a dead process are released."""


@contextmanager
def within_provider_limits(endpoints: Iterable[Endpoint], items: int, chunks: int) -> Iterator[None]:
    """Hold slots of the limits that the endpoints name during the block, no more than `items` calls can use."""
    of_limit: defaultdict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints if items else ():
        if name := limit_name(endpoint.connection):
            of_limit[name].append(endpoint)
    with ExitStack() as held:
        for name in sorted(of_limit):  # always in the same order, so that chunks cannot deadlock
            shares = _shares(of_limit[name], limit_size(name), items, chunks)
            slots = sum(shares)
            # A failed lease renewal is no reason to abort calls that are paid.
            held.enter_context(
                concurrency(name, slots, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False)
            )
            for endpoint, share in zip(of_limit[name], shares, strict=True):
                held.enter_context(_lent(endpoint.limiter, share))
        yield


def _shares(endpoints: Sequence[Endpoint], size: int, items: int, chunks: int) -> list[int]:
    """Return how many slots each endpoint of a limit gets.

    They are acquired together, or two chunks could deadlock. Raise InputError if the limit has fewer slots than
    endpoints.
    """
    if size < len(endpoints):
        name = limit_name(endpoints[0].connection)
        raise InputError(
            f"provider_limit {name!r}: has {size} slots, wanted at least one for each of {len(endpoints)} connections"
        )
    widest = sum(endpoint.connection.max_in_flight for endpoint in endpoints)
    slots = max(len(endpoints), min(size // min(SHARES, max(1, chunks)), items, widest))
    share, remainder = divmod(slots, len(endpoints))
    return [share + (number < remainder) for number in range(len(endpoints))]


def limit_name(connection: ConnectionSpec) -> str | None:
    return connection.provider_limit if isinstance(connection, EndpointConnection) else None


def check_limits(connections: Mapping[str, ConnectionSpec]) -> None:
    """Raise InputError if a connection names a limit that Prefect does not have."""
    for connection in connections.values():
        if name := limit_name(connection):
            limit_size(name)


def limit_size(name: str) -> int:
    """Return the number of slots of a limit. Raise InputError if Prefect has no limit of that name."""
    with get_client(sync_client=True) as client:
        try:
            return int(client.read_global_concurrency_limit_by_name(name).limit)
        except ObjectNotFound as error:
            remedy = f"create it with `prefect gcl create {name} --limit 20`"
            raise InputError(
                f"provider_limit {name!r}: Prefect has no such global concurrency limit; {remedy}"
            ) from error


@contextmanager
def _lent(limiter: Limiter, slots: int) -> Iterator[None]:
    loop.soon(limiter.lend, slots)
    try:
        yield
    finally:
        loop.soon(limiter.lend, -slots)
        with suppress(CancelledError):  # if the flow was stopped, no call is in flight
            loop.run(limiter.drained())


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
    """Whether Prefect will not retry this task, so that failures must be stored as they are."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def is_retry() -> bool:
    """Whether this task was tried before."""
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
def admitted(tally: Tally, chunks: Sequence[Part], stage: Stage, breakers: Sequence[Breaker]) -> Iterator[None]:
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


def awaited(evaluators: Iterable[RunnableEvaluator]) -> list[Breaker]:
    """Return the breakers that a chunk waits for. A fallback judges at once; only if it failed too, the chunk waits."""
    waiting = [one for one in evaluators if one.fallback is None or is_retry()]
    return [tier.breaker for one in waiting for tier in one.tiers or (one,)]


def _pause_s(breakers: Iterable[Breaker]) -> float:
    """Return for how long a retry waits until all breakers admit an item."""
    pause_s = max((breaker.pause_left_s for breaker in breakers), default=0.0)
    return pause_s if is_retry() and pause_s <= LONGEST_PAUSE_S else 0.0


def only_transient(task: Task[..., object], run: TaskRun, state: State[object]) -> bool:
    """Prefect's retry condition: retry chunks with transient failures, but not errors in our own code."""
    return isinstance(state.data, TransientFailuresError)
