from typing import Any

from evalflows.evaluators.direction import needs_reference
from evalflows.evaluators.explained import explained
from evalflows.evaluators.text import answer_text, as_text, reference_value


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
