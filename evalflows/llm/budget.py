"""The budget of a run group: money and calls."""

import asyncio
import math
import threading
from dataclasses import dataclass, field

from evalflows.specs.errors import CallError


@dataclass(slots=True)
class Budget:
    """The limits of one run group, and what its experiments have spent together.

    An upper estimate of a call's cost is set aside before the call and replaced by the actual cost afterwards. Near
    the limit, calls wait for those in flight, so that together they cannot overspend.
    """

    usd: float | None = None
    calls: int | None = None
    spent_usd: float = 0.0
    spent_calls: int = 0
    unpriced: int = 0  # calls of unknown cost, not included in spent_usd
    most_tokens_out: int = 0  # longest answer so far, used for estimates
    _aside: dict[int, float] = field(default_factory=dict)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: list[asyncio.Future[None]] = field(default_factory=list)

    async def reserve(self, estimate_usd: float | None) -> int:
        """Set aside what a call may cost; return the reservation's number. Raises CallError if it does not fit.

        If it would fit should the calls in flight cost less than estimated, it waits for them.
        """
        while True:
            with self._lock:
                number = self._reserved(estimate_usd or 0.0)
                if number is not None:
                    return number
                if not self._aside:
                    raise self.spent()
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changed.append(changed)
            await changed

    def reserve_now(self) -> int:
        """Reserve for a call of the user's own client, which has no estimate and cannot wait."""
        with self._lock:
            spent = self.usd is not None and self.spent_usd >= self.usd
            number = None if spent else self._reserved(0.0)
        if number is None:
            raise self.spent()
        return number

    def set_aside(self, number: int, usd: float) -> None:
        """Change the sum set aside for a call in flight, before another attempt at it.

        Raises CallError if the sum does not fit. It does not wait, since two such calls could wait for each other.
        """
        with self._lock:
            others = sum(self._aside.values()) - self._aside[number]
            if self.usd is not None and usd > self.usd - self.spent_usd - others:
                raise self.spent()
            self._aside[number] = usd

    def settle(self, number: int, cost_usd: float | None, *, paid: bool = True, tokens_out: int | None = None) -> None:
        """Record what a call cost; None if unknown. `paid` is false for a call that was not made at all."""
        with self._lock:
            del self._aside[number]
            self.spent_calls += paid
            self.spent_usd += cost_usd or 0.0
            self.unpriced += paid and cost_usd is None
            self.most_tokens_out = max(self.most_tokens_out, tokens_out or 0)
            waiting, self._changed = self._changed, []
        for changed in waiting:
            changed.get_loop().call_soon_threadsafe(_wake, changed)

    def spent(self) -> CallError:
        """Return the error that says that the budget is spent."""
        limits = []
        if self.calls is not None:
            limits.append(f"{self.spent_calls + len(self._aside)} of {self.calls} calls")
        if self.usd is not None:
            limits.append(f"{self.spent_usd:.4f} of {self.usd:g} USD")
        return CallError("over_budget", f"the budget is spent ({', '.join(limits)})", attempts=0)

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


def _wake(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)
