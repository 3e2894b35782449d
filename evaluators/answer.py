"""The two sides of a comparison: the answer as text, and what it is held against."""

from typing import Any

from evaluators.text import as_text, pick


def answer_text(outputs: dict[str, Any], key: str | None) -> str:
    """The answer as text. An answer that is null says nothing: it is the empty text."""
    value = pick(outputs, key)
    return "" if value is None else as_text(value)


def reference_value(reference_outputs: dict[str, Any] | None, key: str | None) -> Any:
    """A reference's only field whatever its name, else its field `key`, else the whole. None where there is none."""
    several = isinstance(reference_outputs, dict) and len(reference_outputs) > 1
    value = pick(reference_outputs, key if several else None)
    return None if value == {} else value
