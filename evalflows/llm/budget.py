"""The budget of a run group, in money and calls, its parts for chunks in other processes, and what calls cost."""

import asyncio
import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from evalflows.specs.errors import CallError
from evalflows.specs.running import ConnectionSpec, EndpointConnection, LocalConnection

if TYPE_CHECKING:
    from evalflows.store.queries.progress import Paid


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

        If it would fit should the calls in flight cost less than estimated, it waits for them. Raises CallError if it
        does not fit, or cannot be counted.
        """
        while True:
            with self._lock:
                self._check_known(estimate_usd is not None)
                number = self._reserved(estimate_usd or 0.0)
                if number is not None:
                    return number
                if not self._aside:
                    raise self.spent(estimate_usd)
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
            raise self.spent()
        return number

    def set_aside(self, number: int, usd: float) -> None:
        """Change the sum set aside for a call in flight, before another attempt at it.

        Raises CallError if the sum does not fit. It does not wait, since two such calls could wait for each other.
        """
        with self._lock:
            others = sum(self._aside.values()) - self._aside[number]
            if self.usd is not None and usd > self.usd - self.spent_usd - others:
                raise self.spent(usd)
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
        for changed in waiting:
            changed.get_loop().call_soon_threadsafe(_wake, changed)

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
    def share_spent(self) -> float | None:
        """The share of the budget that is spent, of money or of calls; None without a limit."""
        limits = [(self.spent_usd, self.usd), (self.spent_calls, self.calls)]
        return max((spent / limit if limit else 1.0 for spent, limit in limits if limit is not None), default=None)

    def spent(self, estimate_usd: float | None = None) -> CallError:
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
            raise CallError("over_budget", message, attempts=0)

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
    def share_spent(self) -> float | None:
        return self._part.share_spent

    @property
    def _part(self) -> Budget:
        part = self._current.get()
        if part is None:
            raise RuntimeError("a divided budget is spent outside of its chunks")
        return part


BYTES_A_TOKEN = 3
"""For estimates, which should rather be too high: a Chinese character is three bytes, about a token."""
LONG_ANSWER = 500
"""Assumed tokens of the longest answer, before any answer was seen and if the request sets no limit."""


def tokens_of_text(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


MAX_COUNT = 1 << 40
"""No call has as many tokens: a larger count is an error of the endpoint, and unknown."""


def token_count(value: object) -> int | None:
    """Return a count of tokens as reported; None for anything that is no count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a call, as far as the provider reported them."""

    into: int | None = None
    cached: int | None = None  # those of `into` that the provider had in its cache
    out: int | None = None

    @property
    def are_reported(self) -> bool:
        """Whether both counts of a chat are known, as its cost requires."""
        return self.into is not None and self.out is not None

    @property
    def total(self) -> int | None:
        """Those in and out together; None if those of the request are unknown."""
        return None if self.into is None else self.into + (self.out or 0)

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(_sum(self.into, other.into), _sum(self.cached, other.cached), _sum(self.out, other.out))


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price. `listed` is its entry in the price list, which also prices cached tokens and long prompts."""

    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    listed: Any = None

    def cost(self, tokens: Tokens) -> float | None:
        """Return the cost in USD; None if the provider did not report tokens. Embeddings have no output tokens."""
        if tokens.into is None:
            return None
        if self.listed is not None:
            from genai_prices import Usage

            cached = min(tokens.cached or 0, tokens.into)  # some providers do not count cached tokens as input
            usage = Usage(input_tokens=tokens.into, cache_read_tokens=cached or None, output_tokens=tokens.out or None)
            return float(self.listed.calc_price(usage)["total_price"])
        out = (tokens.out or 0) * self.usd_per_million_output_tokens
        return (tokens.into * self.usd_per_million_input_tokens + out) / 1e6


@cache
def price_of(connection: ConnectionSpec, model: str) -> Price | None:
    """Return the price of a model on a connection; None if it is not known."""
    own = connection.usd_per_million_input_tokens, connection.usd_per_million_output_tokens
    if own[0] is not None:
        return Price(own[0], own[1] or 0.0)
    if isinstance(connection, LocalConnection):
        return Price(0.0, 0.0)
    return listed_price(model, connection.base_url, connection.price_list)


@cache
def listed_price(model: str, base_url: str, provider: str | None = None) -> Price | None:
    """Return the listed price of a model, for the named provider or else the one with this address."""
    from genai_prices import Usage, calc_price  # late: few processes ask for a price

    one_token = Usage(input_tokens=1)
    try:
        if provider:
            listed = calc_price(one_token, model, provider_id=provider).model_price
        else:
            listed = calc_price(one_token, model, provider_api_url=base_url).model_price
    except LookupError:
        return None
    return Price(_base_price(listed.input_mtok), _base_price(listed.output_mtok), listed)


def price_at(base_url: str, model: str, connections: Iterable[ConnectionSpec]) -> Price | None:
    """Return the price of a model at an address: of a connection that declares one, for that model first, else listed.

    `base_url` is without a slash at its end.
    """
    there = [one for one in connections if isinstance(one, EndpointConnection) and one.base_url.rstrip("/") == base_url]
    for named in (model, None):
        for one in there:
            if one.model == named and one.usd_per_million_input_tokens is not None:
                return price_of(one, model)
    return listed_price(model, base_url)


def _base_price(price: Any) -> float:
    """Return the price per million tokens; that of short prompts if long ones cost more."""
    return float(getattr(price, "base", price) or 0.0)


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left + (right or 0)
