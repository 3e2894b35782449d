"""The field of an answer or a reference that is compared or judged."""

import json
from typing import Any

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
"""Ranges of characters of scripts that put no spaces between words, or attach particles to them: Thai, Lao, Burmese,
Khmer, Chinese, Japanese, Korean. For use inside a character class of a regular expression."""


def pick(value: Any, key: str | None) -> Any:
    """Return the field `key` of a mapping; without a key, the only field of a mapping with one, else the value itself.

    Raise KeyError if the mapping lacks the key.
    """
    if key is not None:
        if not isinstance(value, dict) or key not in value:
            got = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise KeyError(f"no field {key!r}, got {got or 'nothing'}")
        return value[key]
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value


def as_text(value: Any) -> str:
    """Return a text unchanged, and anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def answer_text(outputs: dict[str, Any], key: str | None) -> str:
    """Return the answer as text; a null answer is the empty text."""
    value = pick(outputs, key)
    return "" if value is None else as_text(value)


def reference_value(reference_outputs: dict[str, Any] | None, key: str | None) -> Any:
    """Return the reference's only field, whatever its name, else the field `key`, else all of it; None if empty."""
    several = isinstance(reference_outputs, dict) and len(reference_outputs) > 1
    value = pick(reference_outputs, key if several else None)
    return None if value == {} else value
