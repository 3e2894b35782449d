"""A budget that is divided among chunks: in a process that chunks are sent to, each spends only its own part."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from evalflows.llm.budget import Budget

_parts: ContextVar[Mapping[str, Budget] | None] = ContextVar("evalflows_parts_of_budget", default=None)


@contextmanager
def divided(parts: Mapping[str, Budget]) -> Iterator[None]:
    """In this block, and in the tasks and threads that it starts, let each experiment or comparison spend its part.

    `parts` are budgets by the id of the experiment or comparison.
    """
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)


def is_divided() -> bool:
    """Whether the current chunk was sent to this process, with a part of the budget."""
    return _parts.get() is not None


class DividedBudget(Budget):
    """The budget of an experiment or a comparison, whose chunks each have a part: the current one's is charged."""

    __slots__ = ("_owner",)

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner

    async def reserve(self, estimate_usd: float | None) -> int:
        return await self._part.reserve(estimate_usd)

    def reserve_now(self) -> int:
        return self._part.reserve_now()

    def set_aside(self, number: int, usd: float) -> None:
        self._part.set_aside(number, usd)

    def settle(self, number: int, cost_usd: float | None, *, paid: bool = True, tokens_out: int | None = None) -> None:
        self._part.settle(number, cost_usd, paid=paid, tokens_out=tokens_out)
        self.most_tokens_out = max(self.most_tokens_out, tokens_out or 0)

    @property
    def _part(self) -> Budget:
        parts = _parts.get()
        if parts is None:
            raise RuntimeError("a divided budget is spent outside of its chunks")
        return parts[self._owner]
