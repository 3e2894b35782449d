"""Names of our own code when versions of it were first stored: another name alone makes no other version.

The version of a function is a hash of its source and of what it holds, so results of the same code stay comparable.
"""

import re
from collections.abc import Mapping

_SOURCES: Mapping[str, Mapping[str, str]] = {
    "evalflows.evaluators.composite": {"MetricPart": "Part"},
    "evalflows.evaluators.conversations": {
        "CONTEXT_USE_PROMPT": "PROMPT",
        "CONVERSATION_QUALITY_PROMPT": "PROMPT",
        "TURN_ERRORS_PROMPT": "PROMPT",
        "_checked_errors": "_checked",
        "TURN_QUALITY_PROMPT": "PROMPT",
    },
    "evalflows.evaluators.numbers": {"see numbers.py": "see evaluators/number.py"},
    "evalflows.evaluators.keyword_safety": {"_texts_within": "_texts"},
}
"""By module: what stands in its functions, and how it stood then."""


def as_first_stored(source: str, module: str | None) -> str:
    """Return the source of a function with the names that it used then."""
    for now, then in _SOURCES.get(module or "", {}).items():
        source = re.sub(rf"(?<![\w/]){re.escape(now)}(?!\w)", then, source)
    return source
