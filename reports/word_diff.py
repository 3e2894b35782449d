"""Which words of a text differ from another's."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from rapidfuzz.distance import Indel

Part = Literal["same", "removed", "added", "cut"]

MAX_CHARACTERS = 20_000
"""Characters of each text that are compared. Of two texts of this length, all words different, it takes 0.1 s."""

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")

WordDiff = list[tuple[Part, str]]


def word_diff(old: str, new: str, most: int = MAX_CHARACTERS) -> WordDiff:
    """Return the parts of two texts in order: `same` in both, `removed` from the old one, or `added` by the new one.

    Words, spaces and punctuation marks are compared whole. Longer texts are compared up to `most` characters; a last
    part `cut` then says how many characters of each are not shown.
    """
    before, after = _TOKENS.findall(old[:most]), _TOKENS.findall(new[:most])
    pieces = [
        (
            code.tag == "equal",
            "".join(before[code.src_start : code.src_end]),
            "".join(after[code.dest_start : code.dest_end]),
        )
        for code in Indel.opcodes(before, after)
    ]
    parts: WordDiff = []
    for is_same, group in groupby(_with_rewritten_phrases(pieces), key=lambda piece: piece[0]):
        removed, added = map("".join, zip(*((was, now) for _, was, now in group), strict=True))
        parts += [("same", removed)] if is_same else [("removed", removed), ("added", added)]
    cut = [f"{len(text) - most:,} of the {side}" for side, text in (("old", old), ("new", new)) if len(text) > most]
    ending: WordDiff = [("cut", f" … {' and '.join(cut)} text's characters are not compared")] if cut else []
    return [*(part for part in parts if part[1]), *ending]


def _with_rewritten_phrases(pieces: Sequence[tuple[bool, str, str]]) -> Iterator[tuple[bool, str, str]]:
    """Count spaces between two changes as changed, so that a rewritten phrase is one change and not one a word."""
    for place, (is_same, old, new) in enumerate(pieces):
        yield is_same and not (old.isspace() and 0 < place < len(pieces) - 1), old, new


def with_context(parts: WordDiff, around: int = 60) -> WordDiff:
    """Shorten what is the same to `around` characters before and after each change; without a change, to the first."""
    out: WordDiff = []
    for place, (kind, text) in enumerate(parts):
        before, after = around * (place > 0), around * (place < len(parts) - 1)
        if kind == "same" and len(text) > before + after + 3 and (before or after):
            text = f"{text[:before]} … {text[len(text) - after :] if after else ''}"
        out.append((kind, text))
    return out
