"""A model's thinking, where a server leaves it in the text of the answer: `<think>…</think>` before it."""

import re

IN_JSON = r'^(\{"[^"]*":\s*)?"(\\n|\s)*<think>'
"""How the JSON of an answer begins, or of its first field, that has a model's thinking; for Python and SQL."""

_OPENING = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(think|thinking|thought|reasoning)>", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Return a text without the thinking before it, which ends with `</think>`; a text that is all thinking is empty.

    Some servers leave out the tag that opens it.
    """
    if closing := _CLOSING.search(text):
        return text[closing.end() :].lstrip()
    return "" if _OPENING.match(text) else text


def after_thinking(text: str) -> list[str]:
    """Return what follows each tag that closes thinking, the shortest first: thinking may quote such a tag."""
    return [text[closing.end() :].strip() for closing in reversed([*_CLOSING.finditer(text)])]
