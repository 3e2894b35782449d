"""What a call costs: by a connection's own prices, else by the price list that comes with genai-prices."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from genai_prices import Usage, calc_price

from specs.connection import ConnectionSpec, LocalConnection


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call used, as far as the provider said."""

    into: int | None = None
    cached: int | None = None  # of those, what the provider had in its cache
    out: int | None = None

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(_sum(self.into, other.into), _sum(self.cached, other.cached), _sum(self.out, other.out))


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price. `listed` is the price list's entry, which knows of caches and of long prompts."""

    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    listed: Any = None

    def cost(self, tokens: Tokens) -> float | None:
        """USD; None where the provider did not say how many tokens it was. A vector has none that come out."""
        if tokens.into is None:
            return None
        if self.listed is not None:
            cached = min(tokens.cached or 0, tokens.into)  # some count the two apart
            usage = Usage(input_tokens=tokens.into, cache_read_tokens=cached or None, output_tokens=tokens.out or None)
            return float(self.listed.calc_price(usage)["total_price"])
        out = (tokens.out or 0) * self.usd_per_million_output_tokens
        return (tokens.into * self.usd_per_million_input_tokens + out) / 1e6


@cache
def price_of(connection: ConnectionSpec, model: str) -> Price | None:
    """The price of a model on a connection; None where nobody knows it."""
    own = connection.usd_per_million_input_tokens, connection.usd_per_million_output_tokens
    if own[0] is not None:
        return Price(own[0], own[1] or 0.0)
    if isinstance(connection, LocalConnection):
        return Price(0.0, 0.0)
    return listed_price(model, connection.base_url, connection.price_list)


@cache
def listed_price(model: str, base_url: str, provider: str | None = None) -> Price | None:
    """The price list's, for the provider that is named, or whose address it is."""
    one = Usage(input_tokens=1)
    try:
        if provider:
            found = calc_price(one, model, provider_id=provider).model_price
        else:
            found = calc_price(one, model, provider_api_url=base_url).model_price
    except LookupError:
        return None
    return Price(_plain(found.input_mtok), _plain(found.output_mtok), found)


def _plain(price: Any) -> float:
    """The price of a million tokens; of those of short prompts, where long ones cost more."""
    return float(getattr(price, "base", price) or 0.0)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)
