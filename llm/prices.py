"""Cost of model calls, from a connection's own prices or else from the price list of genai-prices."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from evalflows.specs.connection import ConnectionSpec, LocalConnection

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


def _base_price(price: Any) -> float:
    """Return the price per million tokens; that of short prompts if long ones cost more."""
    return float(getattr(price, "base", price) or 0.0)


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left + (right or 0)
