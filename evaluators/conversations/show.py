"""A conversation inside a judge's prompt: every message fenced, its heading outside of the fence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evaluators.asking import NONE
from evaluators.conversations.messages import Conversation, said
from evaluators.conversations.truncate import truncated
from evaluators.fence import fenced
from specs.conversation import SYSTEM
from specs.protocols import Complete, Completion, Message


def shown_messages(found: Conversation, places: Iterable[int], left_out: int = 0) -> str:
    """The messages at some places, each fenced behind a heading that says who speaks, in which turn or before it.

    A heading is made of a role and a number alone, so that nothing that is said can pass for one.
    """
    gap = [f"(Messages that are left out here, since there are too many: {left_out})"] if left_out else []
    parts = [f"{_heading(found, place)}\n{fenced(said(found.messages[place]))}" for place in places]
    return "\n\n".join([*gap, *parts]) or NONE


def shown_whole(found: Conversation) -> str:
    return shown_messages(found, range(len(found.messages)))


def shown_within(found: Conversation, end: int, budget_tokens: int | None) -> str:
    """The messages before a place, as many as fit into a budget; the newest are kept."""
    part = truncated(found.messages[:end], budget_tokens)
    return shown_messages(found, part.kept, part.left_out)


def in_place_of(complete: Complete, texts: Mapping[str, str]) -> Complete:
    """`complete`, with a text in place of each fenced name.

    A rubric fences what it shows as one text. So it is given names to show, and where it has fenced them, messages
    that are fenced one by one take their place: all at once, so that no message is searched for names.
    """
    fences = {fenced(name): text for name, text in texts.items()}
    pattern = re.compile("|".join(map(re.escape, fences)))

    async def asked(messages: str | Sequence[Message], **parameters: Any) -> Completion:
        request = pattern.sub(lambda match: fences[match[0]], str(messages))
        return await complete(request, **parameters)

    return asked


def _heading(found: Conversation, place: int) -> str:
    role, turn = found.messages[place]["role"], found.turn_at(place)
    if role in SYSTEM:
        return "System message:"
    if role == "user":
        return f"User, before turn {turn}:" if turn is not None else "User, after the last turn:"
    return f"{'Assistant' if role == 'assistant' else 'Tool'}, turn {turn}:"
