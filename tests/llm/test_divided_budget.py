"""A budget that is divided among chunks."""

import asyncio

import pytest

from evalflows.llm.budget import Budget, DividedBudget
from evalflows.specs.errors import CallError


def test_each_chunk_spends_its_own_part() -> None:
    budget, parts = DividedBudget(), [Budget(calls=1), Budget(calls=2)]

    async def spend(part: Budget) -> int:
        made = 0
        with budget.spending(part):
            while True:
                try:
                    number = await budget.reserve(None)
                except CallError:
                    return made
                await asyncio.sleep(0)  # the other chunk's turn
                budget.settle(number, 0.5)
                made += 1

    async def spend_all() -> list[int]:
        return await asyncio.gather(*map(spend, parts))

    assert asyncio.run(spend_all()) == [1, 2]
    assert [(part.spent_calls, part.spent_usd) for part in parts] == [(1, 0.5), (2, 1.0)]


def test_the_longest_answer_is_known_to_all_chunks() -> None:
    """Estimates rest on it."""
    budget = DividedBudget()
    for tokens in (700, 300):
        with budget.spending(Budget(usd=1.0)):
            number = budget.reserve_now(is_priced=True)
            budget.set_aside(number, 0.5)
            budget.settle(number, 0.1, tokens_out=tokens)
    assert budget.most_tokens_out == 700


def test_outside_of_a_chunk_nothing_can_be_spent() -> None:
    with pytest.raises(RuntimeError):
        DividedBudget().reserve_now(is_priced=True)
