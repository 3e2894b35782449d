"""What an evaluator or a target is handed to reach a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""One chat message: role, content, and what else the provider takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer."""

    text: str
    parsed: Any = None  # the answer as JSON, where a schema was asked for
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    model: str
    call_id: str
    cached: bool = False  # from the ledger, hence at no cost
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None where the price is not known
    latency_s: float | None = None  # of the attempt that succeeded, without waiting for a place


class Complete(Protocol):
    """Ask a model. An async evaluator awaits it, a plain one just calls it."""

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        """`messages` may be one user message as text; `schema` is a JSON schema that the answer is held to;
        `repeat` tells apart askings of the same question. Raises CallError when no attempt gave an answer.
        """
        ...


class Embed(Protocol):
    """Turn texts into vectors."""

    async def __call__(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        """One vector a text, in order. Raises CallError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What an application behind HTTP responded."""

    response: Any  # JSON, or text where it is none
    attempts: int = 1
    latency_s: float | None = None  # of the attempt that succeeded, without waiting for a place


class Post(Protocol):
    """Post JSON to an application behind HTTP."""

    async def __call__(self, body: Any) -> Posted:
        """Raises CallError when no attempt gave a response."""
        ...
