"""Read back what a judge's prompt shows between its fences."""

import json
import re
from typing import Any

_FENCED = re.compile(r"^\[BEGIN (?:JSON )?(\w{16})\]\n(.*?)\n\[END \1\]$", re.M | re.S)


def fenced_texts(prompt: str) -> list[str]:
    return [match[2] for match in _FENCED.finditer(prompt)]


def messages_in(prompt: str) -> list[list[dict[str, Any]]]:
    """Return the lines of each fenced list of messages or steps."""
    return [[json.loads(line) for line in text.splitlines() if line != "(none)"] for text in fenced_texts(prompt)]
