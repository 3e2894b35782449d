from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.text import as_text, pick


def contains(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None = None,
    *,
    any_of: Sequence[str] = (),
    all_of: Sequence[str] = (),
    key: str | None = None,
    ignore_case: bool = True,
) -> bool | None:
    """Whether the answer contains all of `all_of` and at least one of `any_of`.

    Without either, whether it contains the reference, or each element if the reference is a list. None if there is
    nothing to look for.
    """
    any_of, all_of = _texts(any_of), _texts(all_of)
    if not any_of and not all_of:
        several = isinstance(reference_outputs, dict) and len(reference_outputs) > 1
        all_of = _texts(pick(reference_outputs, key if several else None))
    if not any_of and not all_of:
        return None
    text = _fold(as_text(pick(outputs, key)), ignore_case)
    contains_any = not any_of or any(_fold(part, ignore_case) in text for part in any_of)
    return contains_any and all(_fold(part, ignore_case) in text for part in all_of)


def _texts(reference: Any) -> list[str]:
    parts = reference if isinstance(reference, list | tuple) else [reference]
    return [as_text(part) for part in parts if part not in ("", None, {})]


def _fold(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text
