"""A rule about how far the text of an answer is from the reference."""

from typing import Any

from rapidfuzz.distance import Levenshtein

from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.paths import answer_text, as_text, reference_value
from evalflows.specs.errors import CallError

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
