"""Judges of conversations: each turn, the whole, the origin of errors, and the use of earlier statements."""

from evalflows.evaluators.conversations.context_use import context_use
from evalflows.evaluators.conversations.conversation_quality import conversation_quality
from evalflows.evaluators.conversations.messages import Conversation, conversation
from evalflows.evaluators.conversations.truncate import Truncated, estimated_tokens, truncated
from evalflows.evaluators.conversations.turn_errors import turn_errors
from evalflows.evaluators.conversations.turn_quality import turn_quality

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
