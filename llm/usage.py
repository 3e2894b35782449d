"""What calls of models took and cost together."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of some calls; by itself, of none."""

    calls: int = 0
    calls_cached: int = 0
    tokens_in: int | None = None  # None where no call told them
    tokens_out: int | None = None
    cost_usd: float | None = 0.0  # None where that of any paid call is not known

    def __add__(self, other: "Usage") -> "Usage":
        unpriced = self.cost_usd is None or other.cost_usd is None
        return Usage(
            calls=self.calls + other.calls,
            calls_cached=self.calls_cached + other.calls_cached,
            tokens_in=sum_of_known((self.tokens_in, other.tokens_in)),
            tokens_out=sum_of_known((self.tokens_out, other.tokens_out)),
            cost_usd=None if unpriced else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )


NO_USAGE = Usage()


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """None where none of them is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
