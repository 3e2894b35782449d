"""A rule about the pattern that an answer matches."""

import re
from functools import lru_cache
from typing import Any

import regex as patterns

from evalflows.evaluators.comments import explained, shortened
from evalflows.evaluators.paths import answer_text
from evalflows.specs.errors import CallError

MAX_S = 5.0
"""Longest search of one answer, in seconds."""


def why_no_match(outputs: dict[str, Any], *, pattern: str, full: bool = False, **how: Any) -> str:
    """Say which pattern does not match."""
    return f"{'the whole does not match' if full else 'no match of'} {shortened(pattern)}"


@explained(why_no_match)
def regex(
    outputs: dict[str, Any], *, pattern: str, key: str | None = None, full: bool = False, ignore_case: bool = False
) -> bool:
    """Whether the pattern (as of Python's `re`) occurs in the answer or, with `full`, matches all of it.

    Always applies. An answer that is not a text is searched as JSON. It cannot see what the match means: "not Paris"
    matches `Paris`. A search that takes longer than five seconds, as with nested repetitions, fails as `too_slow`.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"pattern: got {type(pattern).__name__}, wanted a text")
    compiled, text = _compiled(pattern, ignore_case), answer_text(outputs, key)
    try:
        # The package `regex` reads the patterns of `re`, which has no time limit and cannot be interrupted.
        match = compiled.fullmatch(text, timeout=MAX_S) if full else compiled.search(text, timeout=MAX_S)
    except TimeoutError:
        raise CallError("too_slow", f"the pattern took longer than {MAX_S:g} s on {len(text)} characters") from None
    return match is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> "patterns.Pattern[str]":
    try:
        re.compile(pattern)  # `regex` accepts more
        return patterns.compile(pattern, patterns.IGNORECASE if ignore_case else 0)
    except (re.error, patterns.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} does not compile: {error}") from error
