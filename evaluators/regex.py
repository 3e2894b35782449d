import re
from functools import lru_cache
from typing import Any

from evalflows.evaluators.text import answer_text


def regex(
    outputs: dict[str, Any], *, pattern: str, key: str | None = None, full: bool = False, ignore_case: bool = False
) -> bool:
    """Whether the pattern (of Python's `re`) occurs in the answer or, with `full`, matches all of it.

    Always applies. An answer that is not a text is searched as JSON. It cannot see what the match means: "not Paris"
    matches `Paris`. A pattern with nested repetitions such as `(a+)+$` can take forever and cannot be interrupted.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"pattern: got {type(pattern).__name__}, wanted a text")
    compiled, text = _compiled(pattern, ignore_case), answer_text(outputs, key)
    return (compiled.fullmatch(text) if full else compiled.search(text)) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} does not compile: {error}") from error
