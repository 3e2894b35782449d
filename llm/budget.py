"""What a run may spend: money, and calls."""

import asyncio
import math
import threading
from dataclasses import dataclass, field

from specs.errors import CallError


@dataclass(slots=True)
class Budget:
    """The limits of one run, and what was spent of them, by all its experiments.

    Before a call its cost is estimated from above and set aside; afterwards what it really cost takes the place of
    that. Near the limit calls therefore wait for those under way, so that they cannot overdraw it together.
    """

    usd: float | None = None
    calls: int | None = None
    spent_usd: float = 0.0
    spent_calls: int = 0
    unpriced: int = 0  # calls whose cost nobody knows: they are not in spent_usd
    most_tokens_out: int = 0  # of an answer so far, on which estimates rest
    _aside: dict[int, float] = field(default_factory=dict)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: list[asyncio.Future[None]] = field(default_factory=list)

    async def reserve(self, estimate_usd: float | None) -> int:
        """Set aside what a call may cost; returns a number to settle by. Raises CallError where it does not fit.

        One that would fit if those under way cost less than estimated waits for them.
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
        """The same for a call of the user's own client, whose cost nobody can estimate, and which cannot wait."""
        with self._lock:
            spent = self.usd is not None and self.spent_usd >= self.usd
            number = None if spent else self._reserved(0.0)
        if number is None:
            raise self.spent()
        return number

    def set_aside(self, number: int, usd: float) -> None:
        """Set aside another sum for a call under way, one more attempt at which is to begin.

        Raises CallError where that does not fit. It does not wait: whoever it waited for might wait for it.
        """
        with self._lock:
            others = sum(self._aside.values()) - self._aside[number]
            if self.usd is not None and usd > self.usd - self.spent_usd - others:
                raise self.spent()
            self._aside[number] = usd

    def settle(self, number: int, cost_usd: float | None, *, paid: bool = True, tokens_out: int | None = None) -> None:
        """Say what a call cost; None for a cost that nobody knows. One that was not made at all is not `paid`."""
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
        """That the budget is spent, as an error."""
        limits = []
        if self.calls is not None:
            limits.append(f"{self.spent_calls} of {self.calls} calls")
        if self.usd is not None:
            limits.append(f"{self.spent_usd:.4f} of {self.usd:g} USD")
        return CallError("over_budget", f"not attempted: the budget is spent ({', '.join(limits)})", attempts=0)

    def _reserved(self, estimate_usd: float) -> int | None:
        """A number if it fits. Called with the lock held."""
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
