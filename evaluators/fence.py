"""Fences around data in a prompt, with marks that the data cannot forge."""

from hashlib import sha256
from itertools import count


def fenced(text: str) -> str:
    """Return the text between two lines with a mark unique to it.

    The mark is a hash of the text, so equal texts give equal requests, which the call ledger recognises, and no text
    can contain its own mark and so close its fence.
    """
    data = text.encode("utf-8", "surrogatepass")
    marks = (sha256(b"%d " % number + data).hexdigest()[:16] for number in count())
    mark = next(mark for mark in marks if mark not in text)
    return f"[BEGIN {mark}]\n{text}\n[END {mark}]"
