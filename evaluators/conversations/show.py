"""A conversation in a judge's prompt: each message fenced, with its heading outside the fence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalflows.evaluators.asking import NONE
from evalflows.evaluators.conversations.messages import Conversation, message_text
from evalflows.evaluators.conversations.truncate import truncated
from evalflows.evaluators.fence import fenced
from evalflows.specs.conversation import SYSTEM
from evalflows.specs.protocols import Complete, Completion, Message


def shown_messages(dialogue: Conversation, indices: Iterable[int], left_out: int = 0) -> str:
    """Return the messages at some indices, each fenced under a heading with the speaker and the turn.

    A heading consists only of a role and a number, and the messages are fenced, so no message can imitate a heading.
    """
    gap = [f"(Messages left out here, since there are too many: {left_out})"] if left_out else []
    parts = [f"{_heading(dialogue, index)}\n{fenced(message_text(dialogue.messages[index]))}" for index in indices]
    return "\n\n".join([*gap, *parts]) or NONE


def shown_whole(dialogue: Conversation) -> str:
    return shown_messages(dialogue, range(len(dialogue.messages)))


def shown_within(dialogue: Conversation, end: int, budget_tokens: int | None) -> str:
    """Return the newest messages before an index that fit into a budget."""
    part = truncated(dialogue.messages[:end], budget_tokens)
    return shown_messages(dialogue, part.kept, part.left_out)


def with_texts_replaced(complete: Complete, texts: Mapping[str, str]) -> Complete:
    """Wrap `complete` so that it replaces each fenced name in the request by a text.

    `rubric` fences what it shows as a single text. It is therefore given names to show, and the fenced names are then
    replaced by messages with a fence each. The replacement is a single pass, so no message is searched for names.
    """
    fences = {fenced(name): text for name, text in texts.items()}
    pattern = re.compile("|".join(map(re.escape, fences)))

    async def complete_with_texts(messages: str | Sequence[Message], **parameters: Any) -> Completion:
        request = pattern.sub(lambda match: fences[match[0]], str(messages))
        return await complete(request, **parameters)

    return complete_with_texts


def _heading(dialogue: Conversation, index: int) -> str:
    role, turn = dialogue.messages[index]["role"], dialogue.turn_at(index)
    if role in SYSTEM:
        return "System message:"
    if role == "user":
        return f"User, before turn {turn}:" if turn is not None else "User, after the last turn:"
    return f"{'Assistant' if role == 'assistant' else 'Tool'}, turn {turn}:"
