"""Truncate a long conversation to a token budget, dropping the oldest messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.conversations.messages import message_text
from evalflows.evaluators.settings import checked_count
from evalflows.specs.conversation import SYSTEM
from evalflows.specs.protocols import Message

BYTES_PER_TOKEN = 3
"""The same rate as in cost estimates: it overestimates tokens rather than underestimating them."""
TOKENS_PER_MESSAGE = 4
"""Tokens for a message's role and delimiters."""

Count = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """The kept messages of a conversation, in order."""

    messages: list[Message]
    kept: list[int]  # their indices in the whole conversation, from 0
    left_out: int  # the number of dropped messages


def estimated_tokens(message: Mapping[str, Any]) -> int:
    """Return an upper estimate of a message's tokens: one for every 3 bytes, and a few for the message itself."""
    return TOKENS_PER_MESSAGE - -len(message_text(message).encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN


def truncated(messages: Sequence[Message], budget_tokens: int | None, count: Count = estimated_tokens) -> Truncated:
    """Keep the system messages and as many of the newest exchanges as fit into the budget; None is no limit.

    An exchange is consecutive user messages and everything until the user speaks again. It is kept whole or not at all,
    and nothing older than the first exchange that does not fit is kept. System messages and the newest exchange are
    kept even if they exceed the budget, since without them there is nothing to judge. A tool message is dropped if the
    call that it answers is not kept or does not exist. Raise ValueError for an invalid budget.
    """
    system = [index for index, message in enumerate(messages) if message["role"] in SYSTEM]
    remaining = None if budget_tokens is None else checked_count("budget_tokens", budget_tokens)
    if remaining is not None:
        remaining -= sum(count(messages[index]) for index in system)
    newest: list[int] = []
    for exchange in reversed(_exchanges(messages)):
        cost = sum(count(messages[index]) for index in exchange)
        if remaining is not None:
            if newest and cost > remaining:
                break
            remaining -= cost
        newest = [*exchange, *newest]
    kept = _answered(messages, sorted([*system, *newest]))
    return Truncated(messages=[messages[index] for index in kept], kept=kept, left_out=len(messages) - len(kept))


def _exchanges(messages: Sequence[Message]) -> list[list[int]]:
    """Return the indices of each exchange; system messages are in no exchange."""
    exchanges: list[list[int]] = []
    before = None
    for index, message in enumerate(messages):
        if message["role"] in SYSTEM:
            continue
        if not exchanges or (message["role"] == "user" and before != "user"):
            exchanges.append([])
        exchanges[-1].append(index)
        before = message["role"]
    return exchanges


def _answered(messages: Sequence[Message], kept: Sequence[int]) -> list[int]:
    """Return the kept indices without tool messages whose call is not kept before them."""
    called: set[str] = set()
    answered = []
    for index in kept:
        message = messages[index]
        answers = {"tool": message.get("tool_call_id"), "function": message.get("name")}
        if message["role"] in answers and answers[message["role"]] not in called:
            continue
        called |= {call.get("id", "") for call in message.get("tool_calls") or []}
        called |= {(message.get("function_call") or {}).get("name", "")}
        answered.append(index)
    return answered
