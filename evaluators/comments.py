"""Comments of rules: why a score is false."""

import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, TypeVar

Rule = TypeVar("Rule", bound=Callable[..., bool | None])

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)

MAX_TEXT = 60
MAX_TEXTS = 5
"""What a comment shows of what was wanted."""


def explained(why_false: Callable[..., str]) -> Callable[[Rule], Rule]:
    """Return a decorator that sets the attribute `why_false` of a rule and returns the same function.

    `why_false` takes the rule's arguments and returns the comment of a score that is false.
    """

    def explain(rule: Rule) -> Rule:
        vars(rule)["why_false"] = why_false
        return rule

    return explain


def quoted(value: Any) -> str:
    """Return a value as JSON on one line, shortened."""
    if isinstance(value, str) and len(value) >= MAX_TEXT:
        start = encode_basestring(value[:MAX_TEXT])
        if start.isascii() and "  " not in start:  # as it is: the rest would be cut off anyway
            return f"{start[: MAX_TEXT - 1]}…"
    return shortened(_ENCODER.encode(value))


def shortened(text: str) -> str:
    """Return a text on one line, cut at MAX_TEXT characters."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def listed(values: Sequence[Any]) -> str:
    """Return the first values as JSON, and the number of others."""
    more = f" and {len(values) - MAX_TEXTS} more" if len(values) > MAX_TEXTS else ""
    return ", ".join(map(quoted, values[:MAX_TEXTS])) + more
