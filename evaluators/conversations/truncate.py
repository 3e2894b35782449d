"""A long conversation cut to a budget of tokens, from its beginning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.conversations.messages import said
from evaluators.settings import a_count
from specs.conversation import SYSTEM
from specs.protocols import Message

BYTES_A_TOKEN = 3
"""As the estimates of what a call costs have it: too many tokens rather than too few."""
OF_A_MESSAGE = 4
"""Tokens for the role of a message, and what marks its ends."""

Count = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """What was kept of a conversation, in its order."""

    messages: list[Message]
    kept: list[int]  # their places in the whole, from 0
    left_out: int  # how many messages were not kept


def estimated_tokens(message: Mapping[str, Any]) -> int:
    """About the tokens of a message, from above: a token for every 3 bytes, and some for the message itself."""
    return OF_A_MESSAGE - -len(said(message).encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN


def truncated(messages: Sequence[Message], budget_tokens: int | None, count: Count = estimated_tokens) -> Truncated:
    """The system messages, and as many of the newest exchanges as fit with them into the budget; None is no limit.

    An exchange is the user's messages in a row and all that follows until the user speaks again. It is kept whole or
    not at all, and nothing older than one that does not fit is kept. System messages and the newest exchange are kept
    even where they alone exceed the budget, since without them there is nothing to judge. A tool's message is never
    kept without the call that it answers, also where the whole lacks that call. Raises ValueError for no budget.
    """
    system = [place for place, message in enumerate(messages) if message["role"] in SYSTEM]
    left = None if budget_tokens is None else a_count("budget_tokens", budget_tokens)
    left = None if left is None else left - sum(count(messages[place]) for place in system)
    newest: list[int] = []
    for exchange in reversed(_exchanges(messages)):
        cost = sum(count(messages[place]) for place in exchange)
        if left is not None:
            if newest and cost > left:
                break
            left -= cost
        newest = [*exchange, *newest]
    kept = _answered(messages, sorted([*system, *newest]))
    return Truncated(messages=[messages[place] for place in kept], kept=kept, left_out=len(messages) - len(kept))


def _exchanges(messages: Sequence[Message]) -> list[list[int]]:
    """The places of each exchange; system messages belong to none."""
    exchanges: list[list[int]] = []
    before = None
    for place, message in enumerate(messages):
        if message["role"] in SYSTEM:
            continue
        if not exchanges or (message["role"] == "user" and before != "user"):
            exchanges.append([])
        exchanges[-1].append(place)
        before = message["role"]
    return exchanges


def _answered(messages: Sequence[Message], kept: Sequence[int]) -> list[int]:
    """The kept places without those of tools' messages whose call is not kept before them."""
    called: set[str] = set()
    sound = []
    for place in kept:
        message = messages[place]
        answers = {"tool": message.get("tool_call_id"), "function": message.get("name")}
        if message["role"] in answers and answers[message["role"]] not in called:
            continue
        called |= {call.get("id", "") for call in message.get("tool_calls") or []}
        called |= {(message.get("function_call") or {}).get("name", "")}
        sound.append(place)
    return sound
