"""Notes of one template: what differs between them is masked, unless few values recur."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

MASK = "…"
MIN_WORDS = 8
"""Fewest words in which else equal notes differ, for these to be masked."""
WORDS = range(5, 61)
"""Words that such notes have."""
CATEGORIES = 0.8
"""Least share of the values at a place of a template that recur, for these to stay: values that mostly differ say what
a task is about, and not what went wrong."""

_SCALARS = [
    r'(?<!\w)"(?:[^"\\]|\\.)*+(?:"|$)(?!:)',  # also a text that was cut; no key of JSON
    r"(?<!\w)'(?:[^'\\]|\\.|'(?=\w))*+'(?!:)",
    r"“[^”]*+(?:”|$)",
    r"`[^`]*+`",
    r"(?<![\w@#/-])[\w@#/-]*\d(?:[\w.,:@/%+-]*[\w%])?",  # numbers, ids, dates
    r"(?<=: )[\w-]+(?=[,;.)}]|$)",  # a word after a colon
    r"(?<=\w=)[\w-]+",
]
_SCALAR = re.compile("|".join(_SCALARS))

_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_WORD = re.compile(r"\w[\w.-]*\w|\w")

_Texts = tuple[str, ...]  # around the values of a note: one more than there are values
_Values = tuple[str, ...]


def _nested(depth: int) -> str:
    """Return the pattern of brackets of JSON with others in them."""
    inside = r"[^][{}]"
    return rf"[\[{{](?:{inside}|{_nested(depth - 1)})*+[\]}}]" if depth else rf"[\[{{]{inside}*+[\]}}]"


_VALUE = re.compile("|".join([_nested(4), *_SCALARS]))


class Compared(NamedTuple):
    """A note as it is compared with others."""

    text: str
    is_variant: bool  # values that recur tell it from others of its template


class Templates:
    """What differs between notes of one template: texts in quotes, JSON, numbers, ids, words after a colon, and a word
    in place of which notes that are else equal have many others.

    At a place of a template where at least CATEGORIES of the values are in `fewest` notes each, as those of few
    categories are, these stay. A note that is the only one of its template stays as it is.
    """

    def __init__(self, notes: Sequence[str], fewest: float) -> None:
        rows: dict[_Texts, list[_Values]] = defaultdict(list)
        for note in notes:
            texts, values = _split(note)
            rows[texts].append(values)
        self._kept = {texts: _kept(of, fewest) for texts, of in rows.items() if len(of) > 1}
        words: dict[int, Counter[str]] = defaultdict(Counter)
        for text, n in Counter(self._without_values(note).text for note in notes).items():
            for word, masked in _each_word_masked(text):
                words[hash(masked)][word] += n
        self._open = {
            masked: len(of) for masked, of in words.items() if len(of) >= MIN_WORDS and not _recurring(of, fewest)
        }

    def compared(self, note: str) -> Compared:
        """Return a note without that in which notes of its template differ."""
        found = self._without_values(note)
        others = [(self._open.get(hash(masked), 0), masked) for _, masked in _each_word_masked(found.text)]
        count, masked = max(others, key=lambda pair: pair[0], default=(0, ""))
        return Compared(masked, False) if count else found

    def _without_values(self, note: str) -> Compared:
        texts, values = _split(note)
        if not values or texts not in self._kept:
            return Compared(note, False)
        shown = [value if value in kept else MASK for value, kept in zip(values, self._kept[texts], strict=True)]
        return Compared("".join(chain(*zip(texts, [*shown, ""], strict=True))), {*shown} != {MASK})


def _split(note: str) -> tuple[_Texts, _Values]:
    """Return the texts around the values of a note, and its values. If it is nothing but JSON, its keys are texts."""
    texts, values = _parted(_VALUE, note)
    return (texts, values) if any(map(_LETTERS.search, texts)) else _parted(_SCALAR, note)


def _parted(pattern: re.Pattern[str], note: str) -> tuple[_Texts, _Values]:
    found = [*pattern.finditer(note)]
    starts, ends = [0, *(match.end() for match in found)], [*(match.start() for match in found), len(note)]
    return tuple(note[start:end] for start, end in zip(starts, ends, strict=True)), tuple(match[0] for match in found)


def _kept(rows: Sequence[_Values], fewest: float) -> list[set[str]]:
    """Return the values that stay at each place of a template. If words do, numbers do not: of which tool, and not in
    which step."""
    kept = [_recurring(Counter(column), fewest) for column in zip(*rows, strict=True)]
    words = [{value for value in values if not _DIGIT.search(value)} for values in kept]
    return words if any(words) else kept


def _recurring(values: Counter[str], fewest: float) -> set[str]:
    """Return the values that stay."""
    usual = {value: n for value, n in values.items() if n >= fewest}
    return {*usual} if sum(usual.values()) >= CATEGORIES * values.total() else set()


def _each_word_masked(text: str) -> Iterator[tuple[str, str]]:
    """Yield each word of a text with the text without it; none if it has too few or many."""
    found = [*_WORD.finditer(text)]
    if len(found) in WORDS:
        yield from ((match[0], text[: match.start()] + MASK + text[match.end() :]) for match in found)
