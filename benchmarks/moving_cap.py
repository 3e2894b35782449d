"""How well the limiter follows a provider whose limit moves: 20, then 10, then 30 calls at once, within a minute.

Run from the repository's root: `python -m benchmarks.moving_cap`. The limiter is allowed 200 and told nothing; a call
takes 200 ms, one too many is refused at once. The moments are drawn anew each time. From 5 s after the start and each
move: wanted under 3 % of calls refused, and at least 90 % of the limit in use.
"""

import asyncio
import random
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from itertools import count
from tempfile import TemporaryDirectory

sys.path.append("tests/support")
from endpoint import Endpoint, serving

from benchmarks.arguments import new_parser
from evalflows.llm import loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger
from evalflows.specs.connections import EndpointConnection
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Complete
from evalflows.store.store import Store

SECONDS, SETTLED_S, CAPS, LATENCY_S, ASKING, SAMPLE_S = 60.0, 5.0, (20, 10, 30), 0.2, 250, 0.02
SMALLEST = 3.0, 0.2
"""Seconds, and those until the limiter should have settled."""


@dataclass
class Phase:
    """What was seen while one limit held, once it had settled."""

    cap: int
    lasted_s: float = 0.0
    used: float = 0.0  # places times seconds
    calls: int = 0
    refused: int = 0

    def __str__(self) -> str:
        refused, used = self.refused / max(1, self.calls), self.used / (self.cap * self.lasted_s)
        return (
            f"limit {self.cap}: {self.calls} calls in {self.lasted_s:.1f} s, refused {refused:.2%}, in use {used:.1%}"
        )


async def ask_forever(complete: Complete, numbers: "count[int]") -> None:
    while True:
        try:
            await complete(f"question {next(numbers)}")
        except CallError:
            continue  # refused as often as it may be


async def follow(endpoint: Endpoint, complete: Complete, seconds: float, settled_s: float) -> list[Phase]:
    """Move the limit at moments that nobody is told, and watch."""
    moves = sorted(random.uniform(0.2, 0.8) * seconds for _ in CAPS[1:])
    while moves[1] - moves[0] < 2 * settled_s:
        moves = sorted(random.uniform(0.2, 0.8) * seconds for _ in CAPS[1:])
    numbers, phases = count(), []
    tasks = [asyncio.ensure_future(ask_forever(complete, numbers)) for _ in range(ASKING)]
    for cap, start, end in zip(CAPS, (0.0, *moves), (*moves, seconds), strict=True):
        endpoint.cap = cap
        await asyncio.sleep(settled_s)
        phases.append(await watch(endpoint, Phase(cap), end - start - settled_s))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return phases


async def watch(endpoint: Endpoint, phase: Phase, seconds: float) -> Phase:
    began, calls, refused = time.perf_counter(), endpoint.calls, endpoint.refused
    last = began
    while (at := time.perf_counter()) - began < seconds:
        phase.used += min(endpoint.in_flight, phase.cap) * (at - last)
        last = at
        await asyncio.sleep(SAMPLE_S)
    phase.lasted_s, phase.calls = last - began, endpoint.calls - calls
    phase.refused = endpoint.refused - refused
    return phase


def parse_arguments() -> Namespace:
    return new_parser("moving_cap", __doc__).parse_args()


def main() -> None:
    sizes = SMALLEST if parse_arguments().smallest else (SECONDS, SETTLED_S)
    with TemporaryDirectory() as folder, serving(Endpoint(LATENCY_S)) as endpoint:
        connection = EndpointConnection(base_url=endpoint.base_url, model="mock", max_in_flight=200, attempts=10)
        complete = completer("moving", connection, Ledger(Store(folder), "bench"))
        for headers in ({}, {"retry-after": "1"}):
            endpoint.refusal_headers = headers
            print(f"refused with {headers or 'no word on when to come back'}")
            for phase in loop.run(follow(endpoint, complete, *sizes)):
                print(f"  {phase}", flush=True)


if __name__ == "__main__":
    main()
