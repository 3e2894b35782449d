"""Tokens of calls, and what they cost."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from evalflows.specs.attachments import attachments_in
from evalflows.specs.connections import ConnectionSpec, GoogleConnection, LocalConnection, RemoteConnection
from evalflows.specs.frozen import dataclass

BYTES_A_TOKEN = 3
"""For estimates, which should rather be too high: a Chinese character is three bytes, about a token."""
ATTACHMENT_TOKENS, ATTACHMENT_BYTES_A_TOKEN = 2_000, 500
"""Assumed tokens of a picture, a sound or a PDF at least, and bytes a token of a large one. A picture in full detail
takes 260 to 1,600 tokens by the providers' formulas, a page of a PDF as much with its text."""
LONG_ANSWER = 500
"""Assumed tokens of the longest answer, before any answer was seen and if the request sets no limit."""

MAX_COUNT = 1 << 40
"""No call has as many tokens: a larger count is an error of the endpoint, and unknown."""


def tokens_of_text(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


def tokens_of_request(request: str) -> int:
    """Estimate the tokens of a request in JSON: of its text, and of the pictures, sounds and PDFs that it refers to."""
    attached = (max(ATTACHMENT_TOKENS, of.size // ATTACHMENT_BYTES_A_TOKEN) for of in attachments_in(request))
    return tokens_of_text(request) + sum(attached)


def token_count(value: object) -> int | None:
    """Return a count of tokens as reported; None for anything that is no count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a call, as far as the provider reported them."""

    into: int | None = None
    cached: int | None = None  # those of `into` that the provider had in its cache
    out: int | None = None
    reasoning: int | None = None  # those of `out` that the model thought in
    written: int | None = None  # those of `into` that the provider has put into its cache, which may cost more

    @property
    def are_reported(self) -> bool:
        """Whether both counts of a chat are known, as its cost requires."""
        return self.into is not None and self.out is not None

    @property
    def total(self) -> int | None:
        """Those in and out together; None if those of the request are unknown."""
        return None if self.into is None else self.into + (self.out or 0)

    def __add__(self, other: "Tokens") -> "Tokens":
        of = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Tokens(*(_sum(left, right) for left, right in of))


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price. `listed` is its entry in the price list, which also prices cached tokens and long prompts."""

    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    listed: Any = None
    usd_per_million_cached_tokens: float | None = None  # None: as other input tokens
    by_name: str = ""  # the provider whose price it is, if only the model's name says so
    share: float = 1.0  # of it that is paid, as in a batch

    def note(self, model: str) -> str:
        """Say that only the model's name tells its price; empty if its address or a connection does."""
        if not self.by_name:
            return ""
        return f"{model}: the price is {self.by_name}'s for a model of this name, as its address is in no price list"

    def cost(self, tokens: Tokens) -> float | None:
        """Return the cost in USD; None if the provider did not report tokens. Embeddings have no output tokens."""
        if tokens.into is None:
            return None
        cached = min(tokens.cached or 0, tokens.into)  # some providers do not count cached tokens as input
        if self.listed is not None:
            from genai_prices import Usage

            written = min(tokens.written or 0, tokens.into - cached)
            usage = Usage(
                input_tokens=tokens.into,
                cache_read_tokens=cached or None,
                cache_write_tokens=written or None,
                output_tokens=tokens.out or None,
            )
            return self.share * float(self.listed.calc_price(usage)["total_price"])
        of_input, of_cached = self.usd_per_million_input_tokens, self.usd_per_million_cached_tokens
        into = (tokens.into - cached) * of_input + cached * (of_input if of_cached is None else of_cached)
        return self.share * (into + (tokens.out or 0) * self.usd_per_million_output_tokens) / 1e6


@cache
def price_of(connection: ConnectionSpec, model: str) -> Price | None:
    """Return the price of a model on a connection; None if it is not known."""
    own = connection.usd_per_million_input_tokens, connection.usd_per_million_output_tokens
    if own[0] is not None:
        of_cached = connection.usd_per_million_cached_tokens
        return Price(own[0], own[1] or 0.0, usd_per_million_cached_tokens=of_cached)
    if isinstance(connection, LocalConnection):
        return Price(0.0, 0.0)
    return listed_price(model, connection.base_url, connection.price_list)


@cache
def listed_price(model: str, base_url: str = "", provider: str | None = None) -> Price | None:
    """Return the listed price of a model: that of the named provider; without one, of the provider with this address,
    else of the first whose models have such names, as behind a gateway."""
    from genai_prices import Usage, calc_price  # late: few processes ask for a price

    one_token = Usage(input_tokens=1)
    by_address: list[dict[str, Any]] = [{"provider_api_url": base_url}] if base_url else []
    ways = [{"provider_id": provider}] if provider else [*by_address, {}]
    for way in ways:
        try:
            found = calc_price(one_token, model, **way)
        except (LookupError, ValueError):
            continue
        listed, by_name = found.model_price, "" if way else found.provider.name
        return Price(_base_price(listed.input_mtok), _base_price(listed.output_mtok), listed, by_name=by_name)
    return None


def price_in_batches(connection: ConnectionSpec, price: Price) -> Price | None:
    """Return the price of a call in a batch, given that of a direct one; None if the connection has no batches."""
    if isinstance(connection, LocalConnection | GoogleConnection):
        return None
    return replace(price, share=connection.batch.price)


def price_at(base_url: str, model: str, connections: Iterable[ConnectionSpec]) -> Price | None:
    """Return the price of a model at an address: of a connection that declares one, for that model first, else listed.

    `base_url` is without a slash at its end.
    """
    there = [
        connection
        for connection in connections
        if isinstance(connection, RemoteConnection) and connection.base_url.rstrip("/") == base_url
    ]
    for named in (model, None):
        for connection in there:
            if connection.model == named and connection.usd_per_million_input_tokens is not None:
                return price_of(connection, model)
    return listed_price(model, base_url)


def _base_price(price: Any) -> float:
    """Return the price per million tokens; that of short prompts if long ones cost more."""
    return float(getattr(price, "base", price) or 0.0)


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left + (right or 0)


def tokens_of(body: Mapping[str, Any]) -> Tokens:
    """Return the token counts that a response reports, by any of the names in use; what it does not report is None."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return Tokens()
    into = _count(usage, "prompt_tokens", "input_tokens")
    out = _count(usage, "completion_tokens", "output_tokens")
    cached = _count(usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
    cached = _detail(usage, "cached_tokens", "prompt", "input") if cached is None else cached
    thinking = _count(usage, "reasoning_tokens")
    thinking = _detail(usage, "reasoning_tokens", "completion", "output") if thinking is None else thinking
    if into is not None and "prompt_tokens" not in usage:  # Anthropic's `input_tokens` are those besides the cache
        into += sum(_count(usage, f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
    total = _count(usage, "total_tokens")
    if into is not None and total is not None and total > into + (out or 0):
        # Some leave the tokens of thinking out of their count, but not out of the total.
        thinking = total - into - out if thinking is None and out is not None else thinking
        out = total - into
    elif out is not None and total is None and thinking is not None and thinking > out:
        out += thinking
    written = _count(usage, "cache_creation_input_tokens")
    return Tokens(into, cached, out, None if thinking is None or out is None else min(thinking, out), written)


def _detail(usage: Mapping[str, Any], name: str, *kinds: str) -> int | None:
    """Return a count of the details on the tokens of the first of these kinds that has it."""
    details = (usage.get(f"{kind}_tokens_details") for kind in kinds)
    counts = (_count(of, name) for of in details if isinstance(of, Mapping))
    return next((count for count in counts if count is not None), None)


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the first count of these names; whole numbers may come as text or as floats."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, str) and re.fullmatch(r"\d{1,15}(\.0+)?", value):
            value = float(value)
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        if (count := token_count(value)) is not None:
            return count
    return None
