"""The fixed limiter."""

import asyncio

from llm.limiter import FixedLimiter


async def hold(limiter: FixedLimiter, order: list[int], number: int) -> None:
    await limiter.acquire()
    order.append(number)
    await asyncio.sleep(0)
    limiter.release("ok")


def test_places_go_in_the_order_of_asking_and_never_beyond_the_width() -> None:
    async def run() -> None:
        limiter, order, peak = FixedLimiter(2), [], 0
        tasks = [asyncio.create_task(hold(limiter, order, number)) for number in range(7)]
        while not all(task.done() for task in tasks):
            peak = max(peak, limiter.in_flight)
            await asyncio.sleep(0)
        assert (order, peak, limiter.in_flight, limiter.width) == (list(range(7)), 2, 0, 2)

    asyncio.run(run())


def test_whoever_gives_up_waiting_takes_no_place() -> None:
    async def run() -> None:
        limiter = FixedLimiter(1)
        await limiter.acquire()
        waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        limiter.release("ok")  # goes to the second
        waiting[1].cancel()  # given a place, and cancelled before it could use it
        await asyncio.sleep(0.01)
        assert waiting[2].done() and not waiting[2].cancelled()
        assert limiter.in_flight == 1
        limiter.release("rate_limited", 1.0)
        assert limiter.in_flight == 0

    asyncio.run(run())
