"""The limiter: order, width, episodes of refusals, waiting, rate, lent slots."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from evalflows.llm.limiter import HOLD_ON_EMPTY_S, PROBE_AFTER, Bucket, Limiter, Slot
from evalflows.llm.rate_limits import RateLimit, period_s, read_rate_limit


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 10))

    run.__name__ = test.__name__
    return run


async def full(limiter: Limiter) -> list[Slot]:
    """Acquire every slot."""
    return [await limiter.acquire() for _ in range(limiter.width - limiter.in_flight)]


async def one_after_another(limiter: Limiter, calls: int) -> None:
    """Make successful calls with every slot in use."""
    slots = await full(limiter)
    for _ in range(calls):
        limiter.release(slots.pop(0), "ok")
        slots += await full(limiter)
    for slot in slots:
        limiter.release(slot, "ok")


async def hold(limiter: Limiter, order: list[int], number: int) -> None:
    slot = await limiter.acquire()
    order.append(number)
    await asyncio.sleep(0)
    limiter.release(slot, "ok")


@on_a_loop
async def test_places_go_in_the_order_of_asking_and_never_beyond_the_width() -> None:
    limiter, order, peak = Limiter(2), [], 0
    tasks = [asyncio.create_task(hold(limiter, order, number)) for number in range(7)]
    while not all(task.done() for task in tasks):
        peak = max(peak, limiter.in_flight)
        await asyncio.sleep(0)
    assert (order, peak, limiter.in_flight, limiter.width) == (list(range(7)), 2, 0, 2)


@on_a_loop
async def test_whoever_gives_up_waiting_takes_no_place() -> None:
    limiter = Limiter(1)
    slot = await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    limiter.release(slot, "ok")  # goes to the second
    waiting[1].cancel()  # given a slot, and cancelled before it could use it
    await asyncio.sleep(0.01)
    assert waiting[2].done() and not waiting[2].cancelled()
    assert limiter.in_flight == 1


@on_a_loop
async def test_it_begins_narrow_and_grows_by_one_for_each_good_call() -> None:
    limiter = Limiter(50, first=4)
    await one_after_another(limiter, 10)
    assert limiter.width == 4 + 10 + 1  # the last ones are released when the slots are not all in use any more
    await one_after_another(limiter, 100)
    assert limiter.width == 50


@on_a_loop
async def test_one_episode_of_refusals_is_one_cut() -> None:
    limiter = Limiter(100, first=20)
    slots = await full(limiter)
    for slot in slots[:10]:
        limiter.release(slot, "rate_limited")
    assert limiter.width == 19
    assert [change.reason for change in limiter.history] == ["began", "refused"]


@on_a_loop
async def test_it_returns_to_where_it_was_refused_stays_there_and_then_tries_one_more() -> None:
    limiter = Limiter(100, first=41)
    slots = await full(limiter)
    limiter.release(slots.pop(), "rate_limited")
    assert limiter.width == 39
    for slot in slots:
        limiter.release(slot, "ok")  # of the episode that is over: they prove nothing
    assert limiter.width == 39
    await one_after_another(limiter, 39)
    assert limiter.width == 40
    await one_after_another(limiter, PROBE_AFTER - 40 - 1)
    assert limiter.width == 40
    await one_after_another(limiter, 40 + 1)
    assert limiter.width == 41


@on_a_loop
async def test_faults_stop_growth_for_a_round_and_cut_nothing() -> None:
    limiter = Limiter(100, first=8)
    limiter.release((await full(limiter))[0], "fault")
    assert limiter.width == 8
    slots = await full(limiter)
    limiter.release(slots[0], "ok")
    assert limiter.width == 8
    assert [change.reason for change in limiter.history] == ["began"]


@on_a_loop
async def test_a_refusal_that_the_width_does_not_explain_leaves_no_ceiling() -> None:
    limiter = Limiter(40, first=20)
    slots = await full(limiter)
    limiter.release(slots.pop(), "ok")  # twenty at once are taken
    limiter.release(slots.pop(5), "rate_limited")  # so the sixth was refused for something else
    assert limiter.width == 20
    for slot in slots:
        limiter.release(slot, "ok")
    await one_after_another(limiter, 60)
    assert limiter.width == 40


@on_a_loop
async def test_refused_again_right_after_a_cut_it_waits_as_long_as_it_is_told() -> None:
    clock = Clock()
    limiter = Limiter(100, first=20, clock=clock)
    slots = await full(limiter)
    limiter.release(slots[0], "rate_limited", RateLimit(3.0))
    assert limiter.width == 19  # the first refusal is taken to be about the width
    limiter.release(slots[1], "ok")
    limiter.release(slots[2], "ok")
    limiter.release(await limiter.acquire(), "rate_limited", RateLimit(3.0))
    assert limiter.width == 9
    for slot in slots[3:]:
        limiter.release(slot, "ok")
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not waiting.done() and limiter.history[-1].reason == "refused_waiting"
    clock.now = 3.01
    limiter._admit()
    limiter.release(await waiting, "ok")


async def refuse(limiter: Limiter, said: RateLimit | None = None) -> None:
    """Start one more call and refuse it; nothing else is in flight."""
    limiter.release(await limiter.acquire(), "rate_limited", said)


@on_a_loop
async def test_at_one_call_at_once_it_waits_twice_as_long_each_time() -> None:
    clock = Clock()
    limiter, waits = Limiter(1, clock=clock), []
    for _ in range(4):
        await refuse(limiter)
        waits.append(limiter._held_until - clock.now)
        clock.now = limiter._held_until
    assert waits == [0.5, 1.0, 2.0, 4.0]


@on_a_loop
async def test_calls_a_minute_are_kept_apart() -> None:
    clock = Clock()
    limiter = Limiter(100, first=100, requests_per_minute=120.0, clock=clock)
    tasks = [asyncio.create_task(limiter.acquire()) for _ in range(5)]
    begun = []
    for step in range(5):
        clock.now = step * 0.5
        limiter._admit()
        await asyncio.sleep(0)
        begun.append(sum(task.done() for task in tasks))
    assert begun == [2, 3, 4, 5, 5]


def test_tokens_a_minute_are_corrected_by_what_was_used() -> None:
    clock = Clock()
    bucket = Bucket(60_000.0, clock)  # 1,000 a second
    assert bucket.wait_s(800) == 0
    bucket.take(800)
    assert bucket.wait_s(800) == pytest.approx(0.6)
    bucket.take(200 - 800)  # it was 200 only
    assert bucket.wait_s(800) == 0
    bucket.take(5_000)  # more than a second's worth is let through, and has to be waited for afterwards
    clock.now = 1.0
    assert bucket.wait_s(1) == pytest.approx(3.2 - 1 + 1.0, abs=1.1)


@on_a_loop
async def test_only_so_many_places_as_were_lent_are_used() -> None:
    limiter = Limiter(100, first=50)
    limiter.lend(5)
    assert limiter.width == 5
    limiter.lend(3)
    slots = await full(limiter)
    assert len(slots) == 8
    limiter.lend(-5)
    giving = asyncio.create_task(limiter.drain())
    await asyncio.sleep(0)
    for slot in slots[:4]:
        assert not giving.done()
        limiter.release(slot, "ok")
        await asyncio.sleep(0)
    assert not giving.done() and limiter.in_flight == 4
    limiter.release(slots[4], "ok")
    await asyncio.sleep(0)
    assert giving.done() and limiter.width == 3


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, RateLimit()),
        ({"retry-after": "2"}, RateLimit(2.0)),
        ({"retry-after-ms": "1500", "retry-after": "2"}, RateLimit(1.5)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s"}, RateLimit(6.0, True)),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, RateLimit(0.25, True)),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6s"}, RateLimit()),
        ({"retry-after": "1", "x-ratelimit-remaining-requests": "0"}, RateLimit(1.0, True)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "later"}, RateLimit(None, True)),
    ],
)
def test_what_a_provider_says_of_its_limits_is_read(headers: dict[str, str], wanted: RateLimit) -> None:
    assert read_rate_limit(headers) == wanted


@on_a_loop
async def test_a_good_call_that_was_the_last_for_now_is_waited_for_but_not_long() -> None:
    clock = Clock()
    limiter = Limiter(100, first=20, clock=clock)
    limiter.release(await limiter.acquire(), "ok", RateLimit(60.0, is_empty=True))
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not waiting.done() and limiter.width == 20
    clock.now = HOLD_ON_EMPTY_S
    limiter._admit()
    await waiting


@on_a_loop
async def test_where_one_more_is_taken_for_a_round_it_grows_as_at_the_start() -> None:
    limiter = Limiter(100, first=11)
    slots = await full(limiter)
    limiter.release(slots.pop(), "rate_limited")
    for slot in slots:
        limiter.release(slot, "ok")
    await one_after_another(limiter, PROBE_AFTER + 10 + 11 + 100)
    assert limiter.width > 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360.0), ("120ms", 0.12), ("1.5", 1.5), ("1h2m3s", 3723.0), ("", None), ("soon", None), ("-1", None)],
)
def test_a_period_is_read(text: str, seconds: float | None) -> None:
    assert period_s(text) == (None if seconds is None else pytest.approx(seconds))
