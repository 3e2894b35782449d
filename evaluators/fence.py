"""A fence around data in a prompt, which the data cannot close."""

from hashlib import sha256
from itertools import count as count_up
from typing import Any

from evalflows.specs.escaping import json_text


def fenced(value: Any) -> str:
    """Return a text, or any other value as JSON, between two lines with a mark unique to it.

    The mark is a hash of the text, so equal values give equal requests, which the call ledger recognises, and no text
    can contain its own mark and so close its fence. The first line says where the value is JSON, so no text can pass
    for a structure.
    """
    text = value if isinstance(value, str) else json_text(value, sort_keys=True)
    data = text.encode("utf-8", "surrogatepass")
    marks = (sha256(b"%d " % number + data).hexdigest()[:16] for number in count_up())
    mark = next(mark for mark in marks if mark not in text)
    return f"[BEGIN {'' if text is value else 'JSON '}{mark}]\n{text}\n[END {mark}]"
