"""What differs between two answers, word by word."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Literal

from evalflows.analysis.changes import ExampleChange
from evalflows.reports.worst import plain_text
from evalflows.specs.frozen import dataclass

SpanKind = Literal["same", "removed", "added", "cut"]

MAX_CHARACTERS = 20_000
"""Characters of each text that are compared. Of two texts of this length, all words different, it takes 0.1 s."""

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_SENTENCES = re.compile(r"(?:[^.!?\n]|[.!?](?=\S))*(?:[.!?]\s*|\n\s*|$)", re.DOTALL)
LEAST_SAME = 0.4
"""The least share of a text's characters that both have, for its words to be compared."""

WordDiff = list[tuple[SpanKind, str]]

BRACKETS = {"removed": ("[-", "-]"), "added": ("{+", "+}")}
"""What stands around the words that differ, where there are no colours."""

NO_ANSWER = "(no answer)"

MOST_SHOWN = 600
"""Characters of an answer that are shown."""


def word_diff(old: str, new: str, most: int = MAX_CHARACTERS) -> WordDiff:
    """Return the parts of two texts in order: `same` in both, `removed` from the old one, or `added` by the new one.

    Sentences are compared first, then within those that differ words, spaces and punctuation marks. Longer texts are
    compared up to `most` characters; a last part `cut` then says how many characters of each are not shown.
    """
    pieces = [
        piece
        for is_same, was, now in _aligned(_SENTENCES.findall(old[:most]), _SENTENCES.findall(new[:most]))
        for piece in ([(True, was, now)] if is_same else _aligned(_TOKENS.findall(was), _TOKENS.findall(now)))
    ]
    parts: WordDiff = []
    for is_same, group in groupby(_with_rewritten_phrases(pieces), key=lambda piece: piece[0]):
        removed, added = map("".join, zip(*((was, now) for _, was, now in group), strict=True))
        parts += [("same", removed)] if is_same else [("removed", removed), ("added", added)]
    cut = [f"{len(text) - most:,} of the {side}" for side, text in (("old", old), ("new", new)) if len(text) > most]
    ending: WordDiff = [("cut", f" … {' and '.join(cut)} text's characters are not compared")] if cut else []
    return [*(part for part in parts if part[1]), *ending]


def _aligned(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield runs of pieces that are the same in both lists, or differ, in turn."""
    from rapidfuzz.distance import Indel  # late: most of what is printed compares no texts

    for is_same, codes in groupby(Indel.opcodes(old, new), key=lambda code: code.tag == "equal"):
        pieces = [(old[code.src_start : code.src_end], new[code.dest_start : code.dest_end]) for code in codes]
        was, now = ("".join(chain.from_iterable(side)) for side in zip(*pieces, strict=True))
        yield is_same, was, now


def has_much_in_common(parts: WordDiff) -> bool:
    """Return whether the words that differ are worth marking: of texts with little in common, nearly all would be."""
    sizes = {kind: sum(len(text) for k, text in parts if k == kind) for kind in ("same", "removed", "added")}
    return sizes["same"] >= LEAST_SAME * (sizes["same"] + max(sizes["removed"], sizes["added"]))


def _with_rewritten_phrases(pieces: Sequence[tuple[bool, str, str]]) -> Iterator[tuple[bool, str, str]]:
    """Count spaces between two changes as changed, so that a rewritten phrase is one change and not one a word."""
    for index, (is_same, old, new) in enumerate(pieces):
        yield is_same and not (old.isspace() and 0 < index < len(pieces) - 1), old, new


def with_context(parts: WordDiff, around: int = 60) -> WordDiff:
    """Shorten what is the same to `around` characters before and after each change; without a change, to the first."""
    out: WordDiff = []
    for index, (kind, text) in enumerate(parts):
        before, after = around * (index > 0), around * (index < len(parts) - 1)
        if kind == "same" and len(text) > before + after + 3 and (before or after):
            text = f"{text[:before]} … {text[len(text) - after :] if after else ''}"
        out.append((kind, text))
    return out


def changed_words(old: str, new: str, most: int = MOST_SHOWN) -> str:
    """Return what differs between two texts in one, with BRACKETS, of which at most `most` characters are kept."""
    parts = _clipped(with_context(word_diff(old, new)), most)
    return "".join(text.join(BRACKETS.get(kind, ("", ""))) for kind, text in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersApart:
    """The answers of both sides, each in parts: what both have, and what only it has."""

    baseline: WordDiff
    candidate: WordDiff


def answers_apart(change: ExampleChange, most: int = MOST_SHOWN) -> AnswersApart:
    """Return both answers with the words that differ, around which at most `most` characters of each are kept."""
    if change.outputs is None or change.baseline_outputs is None:
        sides = (change.baseline_outputs, change.outputs)
        baseline, candidate = (NO_ANSWER if side is None else plain_text(side) for side in sides)
        return AnswersApart(
            baseline=_clipped([("same", baseline)], most), candidate=_clipped([("same", candidate)], most)
        )
    parts = with_context(word_diff(plain_text(change.baseline_outputs), plain_text(change.outputs)))
    return AnswersApart(
        baseline=_clipped([part for part in parts if part[0] != "added"], most),
        candidate=_clipped([part for part in parts if part[0] != "removed"], most),
    )


def _clipped(parts: WordDiff, most: int) -> WordDiff:
    out: WordDiff = []
    for kind, text in parts:
        if len(text) > most:
            return [*out, (kind, text[:most]), ("same", " …")]
        out.append((kind, text))
        most -= len(text)
    return out
