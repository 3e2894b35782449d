"""Rules about the text of an answer: equal, containing, matching, similar, safe, of the right length or label.

A new rule is a function here, with its name in `__all__` of `evaluators/__init__.py`, which makes it a short name.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import regex as patterns
from rapidfuzz.distance import Levenshtein

from evalflows.evaluators.binding import declares, explained, listed, needs_reference, quoted, share, shortened
from evalflows.evaluators.score import UNSPACED, Score, answer_text, as_text, pick, reference_value
from evalflows.specs.errors import CallError


def why_not_contained(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None = None,
    *,
    any_of: Sequence[str] = (),
    all_of: Sequence[str] = (),
    key: str | None = None,
    ignore_case: bool = True,
    normalize: bool = True,
) -> str:
    """Say what is missing in the answer."""
    any_texts, all_texts = _wanted(reference_outputs, any_of, all_of, key)
    fold = partial(_fold, ignore_case=ignore_case, normalize=normalize)
    text = fold(answer_text(outputs, key))
    missing = [part for part in all_texts if fold(part) not in text]
    has_any = not any_texts or any(fold(part) in text for part in any_texts)
    parts = [f"missing: {listed(missing)}"] if missing else []
    return "; ".join([*parts, *([] if has_any else [f"none of: {listed(any_texts)}"])])


@explained(why_not_contained)
def contains(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None = None,
    *,
    any_of: Sequence[str] = (),
    all_of: Sequence[str] = (),
    key: str | None = None,
    ignore_case: bool = True,
    normalize: bool = True,
) -> bool | None:
    """Whether the answer contains all of `all_of` and at least one of `any_of`.

    Without either, whether it contains the reference, or each element if the reference is a list. None if there is
    nothing to look for. With `normalize`, texts are the same that differ only in Unicode form (NFC), line ends, or
    no-break and other wide or narrow spaces.
    """
    any_texts, all_texts = _wanted(reference_outputs, any_of, all_of, key)
    if not any_texts and not all_texts:
        return None
    fold = partial(_fold, ignore_case=ignore_case, normalize=normalize)
    text = fold(answer_text(outputs, key))
    contains_any = not any_texts or any(fold(part) in text for part in any_texts)
    return contains_any and all(fold(part) in text for part in all_texts)


def _wanted(
    reference_outputs: dict[str, Any] | None, any_of: Sequence[str], all_of: Sequence[str], key: str | None
) -> tuple[list[str], list[str]]:
    """Return the texts of which one, and those of which all are looked for."""
    any_texts, all_texts = _texts(any_of) if any_of else [], _texts(all_of) if all_of else []
    if not any_texts and not all_texts:
        several = isinstance(reference_outputs, dict) and len(reference_outputs) > 1
        all_texts = _texts(pick(reference_outputs, key if several else None))
    return any_texts, all_texts


def _texts(reference: Any) -> list[str]:
    if isinstance(reference, str):
        return [reference] if reference else []
    parts = reference if isinstance(reference, list | tuple) else [reference]
    return [as_text(part) for part in parts if part not in ("", None, {})]


_LINE_END = re.compile("\r\n?")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")


def _fold(text: str, ignore_case: bool, normalize: bool, strip: bool = False) -> str:
    """Return a text in the form in which it is compared."""
    if normalize and not text.isascii():
        text = _SPACE.sub(" ", unicodedata.normalize("NFC", text))
    if normalize and "\r" in text:
        text = _LINE_END.sub("\n", text)
    text = text.strip() if strip else text
    return text.casefold() if ignore_case else text


MAX_PRODUCT = 3e10
"""Of the lengths of both texts: about a second of work."""


@declares(share)
@needs_reference
def edit_similarity(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    key: str | None = None,
    ignore_case: bool = False,
    strip: bool = True,
) -> float | None:
    """1 minus the Levenshtein distance of answer and reference divided by the longer length, from 0 to 1 (equal).

    Two empty texts are equal. None without a reference. Texts whose comparison would take longer than about a second
    fail as `too_slow`. It cannot see meaning: "not guilty" is close to "guilty", while
    a paraphrase, or the same words in another order, is far.
    """
    reference = reference_value(reference_outputs, key)
    if reference is None:
        return None
    texts = [answer_text(outputs, key), as_text(reference)]
    texts = [text.strip() if strip else text for text in texts]
    answer, expected = (text.casefold() if ignore_case else text for text in texts)
    if len(answer) * len(expected) > MAX_PRODUCT and answer != expected:
        raise CallError("too_slow", f"texts of {len(answer)} and {len(expected)} characters are too long to compare")
    return Levenshtein.normalized_similarity(answer, expected)


def why_not_equal(
    outputs: dict[str, Any], reference_outputs: dict[str, Any], *, key: str | None = None, **how: bool
) -> str:
    """Say what was got and what was wanted."""
    return f"got {quoted(pick(outputs, key))}, wanted {quoted(pick(reference_outputs, key))}"


@explained(why_not_equal)
@needs_reference
def exact_match(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    key: str | None = None,
    ignore_case: bool = False,
    strip: bool = True,
    normalize: bool = True,
    any_type: bool = False,
) -> bool | None:
    """Whether the answer equals the reference. None if the example has no reference.

    It compares the field `key`, or the only field of each side whatever its name, or else all of both. A text that is a
    JSON object or list equals that object or list. With `any_type`, the text "4" equals the number 4, and "true" true.
    `normalize` is as in `contains`.
    """
    if reference_outputs is None:
        return None
    fold = partial(_folded_texts, fold=partial(_fold, ignore_case=ignore_case, normalize=normalize, strip=strip))
    answer, expected = pick(outputs, key), pick(reference_outputs, key)
    if fold(answer) == fold(expected):
        return True
    if isinstance(answer, str) == isinstance(expected, str):
        return False
    text, value, whole = (
        (answer, expected, reference_outputs) if isinstance(answer, str) else (expected, answer, outputs)
    )
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict | list):
        return (
            any_type and type(said) is not str and (said == value and isinstance(said, bool) == isinstance(value, bool))
        )
    return bool(fold(said) == fold(value) or (key is None and fold(said) == fold(whole)))


def _folded_texts(value: Any, fold: Callable[[str], str]) -> Any:
    """Return a value whose texts are in the form in which they are compared."""
    if isinstance(value, list):
        return [_folded_texts(item, fold) for item in value]
    if isinstance(value, dict):
        return {name: _folded_texts(item, fold) for name, item in value.items()}
    return fold(value) if isinstance(value, str) else value


_SPACELESS = re.compile(f"[{UNSPACED}]")
_FILLERS = re.compile("[\u034f\u115f\u1160\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_SAME = str.maketrans("‘’ʼ‐‑", "'''--")  # noqa: RUF001 - apostrophes and hyphens


def keyword_safety(
    outputs: dict[str, Any], *, blocked: str | Sequence[str], allowed: str | Sequence[str] = (), key: str | None = None
) -> Score:
    """Whether the answer contains none of the blocked words and phrases; the comment lists those it contains.

    It matches whole words, ignoring case, width and invisible characters; the words of a phrase can be separated by
    anything but words. A match inside an allowed phrase does not count. Always applies; every text inside a structure
    is checked. It cannot see harm in other words, negation or quotation, other word forms such as plurals,
    misspellings, accents, s p a c e d letters, or look-alikes from other alphabets.
    """
    phrases, allowed_phrases = _phrases(blocked, "blocked"), _phrases(allowed, "allowed")
    if not phrases:
        raise ValueError("blocked: got nothing, wanted at least one word or phrase")
    texts = [_folded(text) for text in _texts_within(pick(outputs, key))]
    matches = [phrase for phrase in phrases if any(_occurs(phrase, text, allowed_phrases) for text in texts)]
    return Score(value=not matches, comment=f"found: {', '.join(matches)}" if matches else None)


def _phrases(setting: str | Sequence[str], name: str) -> list[str]:
    listed = setting if isinstance(setting, list | tuple) else [setting]
    for phrase in listed:
        if phrase is None or not _folded(as_text(phrase)).strip():
            raise ValueError(f"{name}: got {phrase!r}, wanted a word or a phrase")
    return [as_text(phrase) for phrase in listed]


def _texts_within(value: Any) -> Iterator[str]:
    """Yield every text inside a value, but not field names. (As JSON, a line break would become the letter n.)"""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_within(item)
    elif value is not None:
        yield as_text(value)


def _folded(text: str) -> str:
    """Normalise text that looks the same: drop invisible characters and overlays, fold case and width."""
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf" and unicodedata.combining(c) != 1)
    return unicodedata.normalize("NFKC", _FILLERS.sub("", visible)).casefold().translate(_SAME)


def _occurs(phrase: str, text: str, allowed_phrases: list[str]) -> bool:
    excused = [span for allowed in allowed_phrases for span in _spans(allowed, text)]
    return any(
        not any(begin <= start and end <= stop for begin, stop in excused) for start, end in _spans(phrase, text)
    )


def _spans(phrase: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans where a phrase occurs as whole words."""
    pattern = _pattern(phrase)
    match = pattern.search(text)
    while match:
        start, end = match.span()
        if not _joined(text[start - 1 : start + 1]) and not _joined(text[end - 1 : end + 1]):
            yield start, end
        match = pattern.search(text, start + 1)


@lru_cache(maxsize=10_000)
def _pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(r"[\W_]+".join(re.escape(word) for word in _folded(phrase).split()))


def _joined(pair: str) -> bool:
    """Return whether two adjacent characters belong to one word."""
    return len(pair) == 2 and all(unicodedata.category(c)[0] in "LMN" and not _SPACELESS.match(c) for c in pair)


_MOST_SHOWN = 20


@declares(share)
def label_f1(
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    key: str | None = None,
    average: Literal["macro", "micro"] = "macro",
    labels: Sequence[str] | None = None,
    ignore_case: bool = True,
    strip: bool = True,
) -> Score | None:
    """F1 of a classification over all runs of an experiment, 0 to 1; the comment has the F1 of each label.

    `macro` is the mean over labels, `micro` pools all counts. `labels` are the labels that count, by default those of
    the references: an answer that is not a label is wrong but does not add a label. A failed run counts as a wrong
    answer. Runs without a reference are left out; None if no run has one. It cannot see a label inside a sentence (the
    answer must be the label), several labels per run, or their order.
    """
    _check(outputs, average, labels)
    fold = partial(_label, ignore_case=ignore_case, strip=strip)
    pairs = zip(map(fold, _answers(outputs, key)), map(fold, _references(reference_outputs, key)), strict=True)
    tally = _Tally([pair for pair in pairs if pair[1]])
    if not tally.runs:
        return None
    listed = labels if isinstance(labels, list | tuple) or labels is None else [labels]
    counted, absent = tally.choose([*tally.wanted] if listed is None else [fold(label) or "" for label in listed])
    value = tally.f1(counted) if average == "micro" else sum(tally.f1([label]) for label in counted) / len(counted)
    return Score(value=value, comment=tally.describe(counted, absent))


def _check(outputs: object, average: str, labels: Sequence[str] | None) -> None:
    if isinstance(outputs, dict):
        raise TypeError("got the outputs of one run, wanted those of all runs: list it under summary_evaluators")
    if average not in ("macro", "micro"):
        raise ValueError(f"average: got {average!r}, wanted macro or micro")
    if labels is not None and not labels:
        raise ValueError("labels: got an empty list, wanted at least one label")


class _Tally:
    """Counts of each label: expected, answered, and both."""

    def __init__(self, pairs: list[tuple[str | None, str | None]]) -> None:
        self.runs, self.missing = len(pairs), sum(answer is None for answer, _ in pairs)
        self.wanted = Counter(wanted for _, wanted in pairs if wanted is not None)
        self.answered = Counter(answer for answer, _ in pairs if answer is not None)
        self.right = Counter(wanted for answer, wanted in pairs if wanted is not None and answer == wanted)

    def choose(self, labels: list[str]) -> tuple[list[str], list[str]]:
        """Return the labels that were expected or answered, and those that never were and so have no F1."""
        seen = {label for label in labels if self.wanted[label] or self.answered[label]}
        if not seen:
            raise ValueError(f"labels: got {', '.join(labels)}, wanted some of {', '.join(sorted(self.wanted))}")
        return sorted(seen), sorted({*labels} - seen)

    def f1(self, labels: list[str]) -> float:
        right, wanted, answered = (
            sum(count[label] for label in labels) for count in (self.right, self.wanted, self.answered)
        )
        return 2 * right / (wanted + answered)

    def describe(self, labels: list[str], absent: list[str]) -> str:
        frequent = sorted(labels, key=lambda label: -self.wanted[label])
        parts = [self._describe(label) for label in frequent[:_MOST_SHOWN]]
        more = [f"{len(labels) - _MOST_SHOWN} more labels"] if len(labels) > _MOST_SHOWN else []
        left_out = [f"never seen, left out: {', '.join(absent)}"] if absent else []
        return "; ".join([f"{self.runs} runs, {self.missing} without an answer", *parts, *more, *left_out])

    def _describe(self, label: str) -> str:
        right, wanted, answered = self.right[label], self.wanted[label], self.answered[label]
        precision = f"{right / answered:.2f}" if answered else "none"
        recall = f"{right / wanted:.2f}" if wanted else "none"
        return f"{label}: precision {precision}, recall {recall}, F1 {self.f1([label]):.2f}, wanted {wanted}"


def _references(references: Sequence[dict[str, Any] | None], key: str | None) -> list[Any]:
    values = [reference_value(reference, key) for reference in references]
    for value in values:
        if isinstance(value, dict | list):
            raise ValueError(f"reference: got a {type(value).__name__}, wanted one label; `key` names the field")
    return values


def _answers(outputs: Sequence[dict[str, Any] | None], key: str | None) -> list[Any]:
    """Return the field of each output; None for a failed run, or if it lacks a field that others have."""
    present = [output for output in outputs if output is not None]
    for output in present:
        if key is None and len(output) > 1:
            raise ValueError(f"outputs: got the fields {', '.join(output)}, wanted `key` to name the label's field")
    if present and not any(key is None or key in output for output in present):
        raise KeyError(f"no output has a field {key!r}")
    return [None if output is None or (key and key not in output) else pick(output, key) for output in outputs]


def _label(value: Any, ignore_case: bool, strip: bool) -> str | None:
    """Return a label in the form in which it is compared; None if there is no label."""
    if value is None or value == {}:
        return None
    text = as_text(value)
    text = text.strip() if strip else text
    return (text.casefold() if ignore_case else text) or None


Unit = Literal["characters", "words"]


def why_not_between(
    outputs: dict[str, Any],
    *,
    least: int = 0,
    most: int | None = None,
    unit: Unit = "characters",
    key: str | None = None,
) -> str:
    """Say how long the answer is, and the bound that it misses."""
    length = _length(outputs, unit, key)
    return f"{length} {unit}, wanted at {f'least {least}' if length < least else f'most {most}'}"


@explained(why_not_between)
def length_between(
    outputs: dict[str, Any],
    *,
    least: int = 0,
    most: int | None = None,
    unit: Unit = "characters",
    key: str | None = None,
) -> bool:
    """Whether the answer has at least `least` and at most `most` characters (or words), both bounds included.

    Always applies. Space around the answer does not count; a character is a Unicode code point, words are separated by
    spaces. It cannot see what the answer says, and counts a text in a script without spaces as one word.
    """
    if unit not in ("characters", "words"):
        raise ValueError(f"unit: got {unit!r}, wanted characters or words")
    if least <= 0 and most is None:
        raise ValueError("got no bound, wanted least, most or both")
    if most is not None and most < least:
        raise ValueError(f"got least {least} and most {most}, wanted least to be at most {most}")
    length = _length(outputs, unit, key)
    return least <= length and (most is None or length <= most)


def _length(outputs: dict[str, Any], unit: Unit, key: str | None) -> int:
    text = answer_text(outputs, key).strip()
    return len(text.split()) if unit == "words" else len(text)


MAX_S = 5.0
"""Longest search of one answer, in seconds."""


def why_no_match(outputs: dict[str, Any], *, pattern: str, full: bool = False, **how: Any) -> str:
    """Say which pattern does not match."""
    return f"{'the whole does not match' if full else 'no match of'} {shortened(pattern)}"


@explained(why_no_match)
def regex(
    outputs: dict[str, Any], *, pattern: str, key: str | None = None, full: bool = False, ignore_case: bool = False
) -> bool:
    """Whether the pattern (as of Python's `re`) occurs in the answer or, with `full`, matches all of it.

    Always applies. An answer that is not a text is searched as JSON. It cannot see what the match means: "not Paris"
    matches `Paris`. A search that takes longer than five seconds, as with nested repetitions, fails as `too_slow`.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"pattern: got {type(pattern).__name__}, wanted a text")
    compiled, text = _compiled(pattern, ignore_case), answer_text(outputs, key)
    try:
        # The package `regex` reads the patterns of `re`, which has no time limit and cannot be interrupted.
        match = compiled.fullmatch(text, timeout=MAX_S) if full else compiled.search(text, timeout=MAX_S)
    except TimeoutError:
        raise CallError("too_slow", f"the pattern took longer than {MAX_S:g} s on {len(text)} characters") from None
    return match is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> "patterns.Pattern[str]":
    try:
        re.compile(pattern)  # `regex` accepts more
        return patterns.compile(pattern, patterns.IGNORECASE if ignore_case else 0)
    except (re.error, patterns.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} does not compile: {error}") from error
