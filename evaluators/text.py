"""Rules about the text of an answer: equal, containing, of the right length.

A new rule is a function here, with its name in `__all__` of `evaluators/__init__.py`, which makes it a short name.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from evalflows.evaluators.comments import explained, listed, quoted
from evalflows.evaluators.declarations import needs_reference
from evalflows.evaluators.paths import answer_text, as_text, pick, reference_value

_LINE_END = re.compile("\r\n?")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")

Unit = Literal["characters", "words"]


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
