"""The first call with a long beginning goes alone; others wait for it, and for nothing else."""

import asyncio
from collections.abc import Sequence

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.llm import loop, prefixes
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger
from evalflows.llm.prefixes import LONG
from evalflows.specs import EndpointConnection
from evalflows.specs.errors import CallError
from evalflows.store import Store

N = 8


def in_flight_at(prompts: Sequence[str], first: Reply | None = None) -> list[int]:
    """Return how many calls were in flight when each was answered, in the order of their arrival."""
    seen: list[int] = []

    def answer(request: Request) -> Reply:
        seen.append(endpoint.in_flight)
        return first if first is not None and len(seen) == 1 else completion("yes")

    endpoint = Endpoint(latency_s=0.05, answer=answer)
    with serving(endpoint):
        connection = EndpointConnection(base_url=endpoint.base_url, attempts=1, model="m")
        complete = completer("mock", connection, Ledger(Store(), "exp-1"))

        async def ask() -> None:
            answers = await asyncio.gather(*(complete(prompt) for prompt in prompts), return_exceptions=True)
            failed = [answer for answer in answers if isinstance(answer, BaseException)]
            assert len(failed) == (first is not None) and all(isinstance(answer, CallError) for answer in failed)

        loop.run(ask())
    return seen


def test_the_first_call_with_a_long_beginning_goes_alone_and_its_failure_blocks_nobody() -> None:
    same = [f"{'x' * LONG} question {number}" for number in range(N)]
    for first in (None, error(500, "down")):
        seen = in_flight_at(same, first)
        assert len(seen) == N and seen[0] == 1 and max(seen) > 2, "after it, all at once"
    assert in_flight_at([f"{number} {'x' * LONG}" for number in range(N)])[-1] > 2
    assert in_flight_at([f"short, question {number}" for number in range(N)])[-1] > 2


def test_calls_wait_for_a_slow_first_one_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_WAIT_S", 0.01)
    assert max(in_flight_at([f"{'x' * LONG} question {number}" for number in range(N)])) > 2
