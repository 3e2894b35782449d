"""Chunks that are sent to other processes: each brings along which start it belongs to, and its part of the budget.

The budget is divided by the number of items, so that all processes together cannot overspend it, and none has to ask
another before a call. What some chunks leave over goes to those whose part was too small, when all have ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from evalflows.execution.chunks import Chunk, Dispatch
from evalflows.execution.pair_chunks import PairChunk
from evalflows.llm.budget import Budget
from evalflows.store.parquet import Store
from evalflows.store.queries.spent_parts import Spent, spent_on_part

Sent = TypeVar("Sent", Chunk, PairChunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left of a budget."""

    usd: float | None
    calls: int | None

    @property
    def is_limited(self) -> bool:
        return self.usd is not None or self.calls is not None

    @property
    def is_spent(self) -> bool:
        return (self.usd is not None and self.usd <= 0.0) or (self.calls is not None and self.calls <= 0)

    def part(self, before: int, until: int, of: int) -> "Left":
        """Return the part for the items from `before` up to `until` of so many; all parts add up to the whole."""
        usd = None if self.usd is None else max(0.0, self.usd) * (until - before) / of
        whole = None if self.calls is None else max(0, self.calls)
        return Left(usd=usd, calls=None if whole is None else whole * until // of - whole * before // of)


def left_of(usd: float | None, calls: int | None, spent: Spent) -> Left:
    """Return what is left of the limits of a spec."""
    return Left(
        usd=None if usd is None else max(0.0, usd - spent.usd),
        calls=None if calls is None else max(0, calls - spent.calls),
    )


def dispatched(
    store: Store, chunks: Sequence[Sent], attempts: dict[str, datetime], left: Left, items: int
) -> list[Sent]:
    """Return the chunks with what they bring along.

    Args:
        store: Where what they have already spent is recorded.
        chunks: Chunks of one run.
        attempts: `recorded_at` of each experiment or comparison.
        left: What is left of the budget for these and later chunks.
        items: Number of items that it is for, at least those of the chunks.
    """
    sent, before = [], 0
    for chunk in chunks:
        until = before + chunk.stop - chunk.start
        part = left.part(before, until, items)
        already = spent_on_part(store, chunk.owner, chunk.part) if left.is_limited else Spent(0, 0.0)
        dispatch = Dispatch(
            attempt=attempts[chunk.owner],
            usd=None if part.usd is None else already.usd + part.usd,
            calls=None if part.calls is None else already.calls + part.calls,
        )
        sent.append(replace(chunk, dispatch=dispatch))
        before = until
    return sent


def budget_of_part(store: Store, chunk: Chunk | PairChunk) -> Budget:
    """Return the budget of a chunk that was sent to this process, with what it has spent in any process."""
    dispatch = chunk.dispatch
    if dispatch is None:
        raise ValueError(f"{chunk.part}: got a chunk that was not sent")
    if dispatch.usd is None and dispatch.calls is None:
        return Budget()
    spent = spent_on_part(store, chunk.owner, chunk.part)
    return Budget(usd=dispatch.usd, calls=dispatch.calls, spent_usd=spent.usd, spent_calls=spent.calls)
