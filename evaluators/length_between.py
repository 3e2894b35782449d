from typing import Any, Literal

from evalflows.evaluators.explained import explained
from evalflows.evaluators.text import answer_text

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
