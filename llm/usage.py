"""Totals over model calls: their number, tokens and cost."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The totals of some calls; the defaults are those of no calls."""

    calls: int | None = 0  # None if some may have been made that nobody recorded
    calls_cached: int | None = 0
    tokens_in: int | None = None  # None if no call reported them
    tokens_out: int | None = None
    cost_usd: float | None = 0.0  # None if the cost of any paid call is unknown

    def __add__(self, other: "Usage") -> "Usage":
        unpriced = self.cost_usd is None or other.cost_usd is None
        return Usage(
            calls=sum_unless_unknown(self.calls, other.calls),
            calls_cached=sum_unless_unknown(self.calls_cached, other.calls_cached),
            tokens_in=sum_of_known((self.tokens_in, other.tokens_in)),
            tokens_out=sum_of_known((self.tokens_out, other.tokens_out)),
            cost_usd=None if unpriced else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )


NO_USAGE = Usage()

UNRECORDED = Usage(calls=None, calls_cached=None, cost_usd=None)


def sum_unless_unknown(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; None if all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
