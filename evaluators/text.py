"""Rules about the text of an answer: equal, containing, matching, similar, safe, of the right length or label.

A new rule is a function here, with its name in `__all__` of `evaluators/__init__.py`, which makes it a short name.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import regex as patterns
from rapidfuzz.distance import Levenshtein

from evalflows.evaluators.comments import explained, listed, quoted, shortened
from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.paths import answer_text, as_text, pick, reference_value
from evalflows.specs.errors import CallError

_LINE_END = re.compile("\r\n?")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")

MAX_PRODUCT = 3e10
"""Of the lengths of both texts: about a second of work."""

Unit = Literal["characters", "words"]

MAX_S = 5.0
"""Longest search of one answer, in seconds."""


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


def _fold(text: str, ignore_case: bool, normalize: bool, strip: bool = False) -> str:
    """Return a text in the form in which it is compared."""
    if normalize and not text.isascii():
        text = _SPACE.sub(" ", unicodedata.normalize("NFC", text))
    if normalize and "\r" in text:
        text = _LINE_END.sub("\n", text)
    text = text.strip() if strip else text
    return text.casefold() if ignore_case else text


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


def why_too_long(
    outputs: dict[str, Any], reference_outputs: dict[str, Any], *, at_most: float = 2.0, key: str | None = None
) -> str:
    """Say how long the answer and the reference are."""
    wanted = len(as_text(reference_value(reference_outputs, key)).strip())
    return f"{len(answer_text(outputs, key).strip())} characters, wanted at most {at_most:g} times {wanted}"


@explained(why_too_long)
@needs_reference
def concision(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    at_most: float = 2.0,
    key: str | None = None,
) -> bool | None:
    """Whether the answer is at most `at_most` times as long as the reference, in characters without surrounding space.

    None without a reference, or with an empty one. It cannot see whether the answer is right or says anything: an empty
    answer is concise.
    """
    if not at_most > 0:
        raise ValueError(f"at_most: got {at_most}, wanted more than 0")
    reference = reference_value(reference_outputs, key)
    text = "" if reference is None else as_text(reference).strip()
    if not text:
        return None
    return len(answer_text(outputs, key).strip()) <= at_most * len(text)
