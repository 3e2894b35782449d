"""The budget of a run group, in money and calls, and its parts for chunks in other processes."""

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evalflows.specs.errors import CallError

if TYPE_CHECKING:
    from evalflows.store.queries.spending import Paid


@dataclass(slots=True)
class Budget:
    """The limits of one run group, and what its experiments have spent together.

    An upper estimate of a call's cost is set aside before the call and replaced by the actual cost afterwards, or by an
    estimate from its texts. Near the limit, calls wait for those in flight, so that together they cannot overspend.

    If a call's cost can neither be known nor estimated, a limit in money cannot hold. If it `counts_unknown`, no such
    call is made, and no call after one that proved to be such.
    """

    usd: float | None = None
    calls: int | None = None
    counts_unknown: bool = True
    spent_usd: float = 0.0
    estimated_usd: float = 0.0  # the part of spent_usd that is estimated from texts
    spent_calls: int = 0
    unknown: int = 0  # calls whose cost is neither known nor estimated, not included in spent_usd
    most_tokens_out: int = 0  # longest answer so far, used for estimates
    most_usd: dict[str, float] = field(default_factory=dict)  # highest cost of an application's answer, by experiment
    _aside: dict[int, float] = field(default_factory=dict)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: list[asyncio.Future[None]] = field(default_factory=list)

    async def reserve(self, estimate_usd: float | None) -> int:
        """Set aside what a call may cost, None if unknown; return the reservation's number.

        If it would fit should the calls in flight cost less than estimated, it waits for them. Raise CallError if it
        does not fit, or cannot be counted.
        """
        while True:
            with self._lock:
                self._check_known(estimate_usd is not None)
                number = self._reserved(estimate_usd or 0.0)
                if number is not None:
                    return number
                if not self._aside:
                    raise self.over_budget_error(estimate_usd)
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changed.append(changed)
            await changed

    def reserve_now(self, *, is_priced: bool) -> int:
        """Reserve for a call of the user's own client, which has no estimate and cannot wait."""
        with self._lock:
            self._check_known(is_priced)
            spent = self.usd is not None and self.spent_usd >= self.usd
            number = None if spent else self._reserved(0.0)
        if number is None:
            raise self.over_budget_error()
        return number

    async def reserve_again(self, number: int, estimate_usd: float) -> int:
        """Replace a reservation for a call that was not sent by one of another sum, as `reserve` does."""
        with self._lock:
            del self._aside[number]
            waiting, self._changed = self._changed, []
        _wake_all(waiting)
        return await self.reserve(estimate_usd)

    def set_aside(self, number: int, usd: float) -> None:
        """Change the sum set aside for a call in flight, before another attempt at it.

        Raise CallError if the sum does not fit. It does not wait, since two such calls could wait for each other.
        """
        with self._lock:
            others = sum(self._aside.values()) - self._aside[number]
            if self.usd is not None and usd > self.usd - self.spent_usd - others:
                raise self.over_budget_error(usd)
            self._aside[number] = usd

    def settle(
        self,
        number: int,
        cost_usd: float | None,
        *,
        estimated_usd: float | None = None,
        paid: bool = True,
        tokens_out: int | None = None,
    ) -> None:
        """Record what a call cost; if that is unknown, the estimate. `paid` is false for a call that was not made."""
        with self._lock:
            del self._aside[number]
            if paid:
                estimate = None if cost_usd is not None else estimated_usd
                self.spent_calls += 1
                self.spent_usd += cost_usd or estimate or 0.0
                self.estimated_usd += estimate or 0.0
                self.unknown += cost_usd is None and estimate is None
            self.most_tokens_out = max(self.most_tokens_out, tokens_out or 0)
            waiting, self._changed = self._changed, []
        _wake_all(waiting)

    def correct(
        self, before_usd: float | None, cost_usd: float | None, estimated_usd: float | None, *, calls: int = 0
    ) -> None:
        """Replace the estimate of a call that was recorded as paid by what it cost; if that is unknown, an estimate.

        `calls` is added to the number of calls: -1 for a call that was not made after all.
        """
        estimate = None if cost_usd is not None else estimated_usd
        with self._lock:
            self.spent_usd += (cost_usd or estimate or 0.0) - (before_usd or 0.0)
            self.estimated_usd += (estimate or 0.0) - (before_usd or 0.0)
            self.unknown += (cost_usd is None and estimate is None) - (before_usd is None)
            self.spent_calls += calls
            waiting, self._changed = self._changed, []
        _wake_all(waiting)

    @classmethod
    def after(cls, paid: "Paid", *, usd: float | None, calls: int | None, counts_unknown: bool) -> "Budget":
        """Return a budget with these limits, of which that much is spent."""
        return cls(
            usd=usd,
            calls=calls,
            counts_unknown=counts_unknown,
            spent_usd=paid.usd,
            estimated_usd=paid.estimated_usd,
            spent_calls=paid.calls,
            unknown=paid.unknown,
        )

    @property
    def limits_money(self) -> bool:
        return self.usd is not None

    @property
    def share_spent(self) -> float | None:
        """The share of the budget that is spent, of money or of calls; None without a limit."""
        limits = [(self.spent_usd, self.usd), (self.spent_calls, self.calls)]
        return max((spent / limit if limit else 1.0 for spent, limit in limits if limit is not None), default=None)

    def over_budget_error(self, estimate_usd: float | None = None) -> CallError:
        """Return the error that says that the budget is spent, or has no room for a call that may cost so much."""
        limits = []
        if self.calls is not None:
            limits.append(f"{self.spent_calls + len(self._aside)} of {self.calls} calls")
        if self.usd is not None:
            limits.append(f"{self.spent_usd:.4f} of {self.usd:g} USD")
        if self.usd is not None and self.estimated_usd:
            limits.append(f"{self.estimated_usd:.4f} of that estimated from texts, since no usage was reported")
        said = "the budget is spent"
        has_calls = self.calls is None or self.spent_calls + len(self._aside) < self.calls
        if has_calls and estimate_usd and self.usd is not None and self.spent_usd < self.usd:
            said = f"the next call, of at most {estimate_usd:.4f} USD, does not fit the budget"
        return CallError("over_budget", f"{said} ({', '.join(limits)})", attempts=0)

    def _check_known(self, is_priced: bool) -> None:
        """Raise CallError for a call of unknown cost, or after one, if the budget counts them."""
        if self.usd is not None and self.counts_unknown and (self.unknown or not is_priced):
            what = (
                f"the cost of {self.unknown} calls is unknown" if self.unknown else "the price of this call is unknown"
            )
            message = f"budget_usd cannot be enforced: {what}; wanted prices, or budget_counts_unknown: false"
            raise CallError("unpriced", message, attempts=0)

    def _reserved(self, estimate_usd: float) -> int | None:
        """Return a reservation's number, or None if it does not fit. Call it with the lock held."""
        if self.calls is not None and self.spent_calls + len(self._aside) >= self.calls:
            return None
        left = math.inf if self.usd is None else self.usd - self.spent_usd - sum(self._aside.values())
        if 0 < estimate_usd > left:
            return None
        self._next += 1
        self._aside[self._next] = estimate_usd
        return self._next


def _wake_all(waiting: "list[asyncio.Future[None]]") -> None:
    for changed in waiting:
        changed.get_loop().call_soon_threadsafe(_wake, changed)


def _wake(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)


class DividedBudget(Budget):
    """The budget of an experiment or a comparison, whose chunks each have a part: the current one's is charged."""

    __slots__ = ("_current",)

    def __init__(self) -> None:
        super().__init__()
        self._current: ContextVar[Budget | None] = ContextVar("evalflows_part_of_budget", default=None)

    @contextmanager
    def spending(self, part: Budget) -> Iterator[None]:
        """In this block, and in the tasks and threads that it starts, spend a part."""
        token = self._current.set(part)
        try:
            yield
        finally:
            self._current.reset(token)

    async def reserve(self, estimate_usd: float | None) -> int:
        return await self._part.reserve(estimate_usd)

    async def reserve_again(self, number: int, estimate_usd: float) -> int:
        return await self._part.reserve_again(number, estimate_usd)

    def reserve_now(self, *, is_priced: bool) -> int:
        return self._part.reserve_now(is_priced=is_priced)

    def set_aside(self, number: int, usd: float) -> None:
        self._part.set_aside(number, usd)

    def settle(
        self,
        number: int,
        cost_usd: float | None,
        *,
        estimated_usd: float | None = None,
        paid: bool = True,
        tokens_out: int | None = None,
    ) -> None:
        self._part.settle(number, cost_usd, estimated_usd=estimated_usd, paid=paid, tokens_out=tokens_out)
        self.most_tokens_out = max(self.most_tokens_out, tokens_out or 0)

    @property
    def limits_money(self) -> bool:
        return self._part.limits_money

    @property
    def share_spent(self) -> float | None:
        return self._part.share_spent

    @property
    def _part(self) -> Budget:
        part = self._current.get()
        if part is None:
            raise RuntimeError("a divided budget is spent outside of its chunks")
        return part
