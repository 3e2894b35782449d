"""Data inside a prompt, between marks that it cannot forge."""

from hashlib import sha256
from itertools import count


def fenced(text: str) -> str:
    """The text between two lines that bear a mark of its own.

    The mark is a hash of the text: equal texts give equal requests, so the ledger knows them again, and no text can
    hold its own mark, so whatever it says, it does not end its fence.
    """
    data = text.encode("utf-8", "surrogatepass")
    marks = (sha256(b"%d " % number + data).hexdigest()[:16] for number in count())
    mark = next(mark for mark in marks if mark not in text)
    return f"[BEGIN {mark}]\n{text}\n[END {mark}]"
