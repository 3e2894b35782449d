"""Judging conversations: turn by turn, as a whole, where errors began, and whether what was said is used."""

from evaluators.conversations.context_use import context_use
from evaluators.conversations.conversation_quality import conversation_quality
from evaluators.conversations.messages import Conversation, conversation
from evaluators.conversations.truncate import Truncated, estimated_tokens, truncated
from evaluators.conversations.turn_errors import turn_errors
from evaluators.conversations.turn_quality import turn_quality

__all__ = [
    "Conversation",
    "Truncated",
    "context_use",
    "conversation",
    "conversation_quality",
    "estimated_tokens",
    "truncated",
    "turn_errors",
    "turn_quality",
]
