"""Protocols of the callables that evaluators and targets get: `complete`, `embed` and `post`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from evalflows.specs.frozen import dataclass

Message = dict[str, Any]
"""One chat message: role, content, and any other fields of the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer."""

    text: str
    parsed: Any = None  # the answer as JSON, if a schema was requested
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    has_thinking: bool = False  # apart from the text
    finish_reason: str | None = None
    is_truncated: bool = False  # whether it stops at the token limit
    model: str
    call_id: str
    cached: bool = False  # from the ledger, at no cost
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None if the price is not known
    latency_s: float | None = None  # of the successful attempt, without queueing


class Complete(Protocol):
    """Call a model. Async evaluators await it, synchronous ones just call it."""

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        """Return the model's answer. Raise CallError if all attempts failed.

        `messages` may be a single user message as text; `schema` is a JSON schema that the answer must match; `repeat`
        distinguishes repeated calls with the same messages.
        """
        ...


Completes = Callable[[str], Complete]
"""Returns `complete` for the name of a connection."""


class Embed(Protocol):
    """Embed texts."""

    async def __call__(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        """Return one vector per text, in order. Raise CallError if all attempts failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The response of an application behind HTTP."""

    response: Any  # JSON, or text if it is not JSON
    attempts: int = 1
    latency_s: float | None = None  # of the successful attempt, without queueing
    version: str | None = None  # of the application, if it says it
    cost_is_unknown: bool = False  # whether an attempt before it may have been paid, nobody knows at what cost


class Post(Protocol):
    """Post JSON to an application behind HTTP."""

    async def __call__(self, body: Any, headers: Mapping[str, str] = ...) -> Posted:
        """Return the response; `headers` are sent besides the target's. Raise CallError if all attempts failed."""
        ...
