from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.explained import explained, listed
from evalflows.evaluators.text import as_text, pick


def why_not_contained(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None = None,
    *,
    any_of: Sequence[str] = (),
    all_of: Sequence[str] = (),
    key: str | None = None,
    ignore_case: bool = True,
) -> str:
    """Say what is missing in the answer."""
    any_texts, all_texts = _wanted(reference_outputs, any_of, all_of, key)
    text = _fold(as_text(pick(outputs, key)), ignore_case)
    missing = [part for part in all_texts if _fold(part, ignore_case) not in text]
    has_any = not any_texts or any(_fold(part, ignore_case) in text for part in any_texts)
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
) -> bool | None:
    """Whether the answer contains all of `all_of` and at least one of `any_of`.

    Without either, whether it contains the reference, or each element if the reference is a list. None if there is
    nothing to look for.
    """
    any_texts, all_texts = _wanted(reference_outputs, any_of, all_of, key)
    if not any_texts and not all_texts:
        return None
    text = _fold(as_text(pick(outputs, key)), ignore_case)
    contains_any = not any_texts or any(_fold(part, ignore_case) in text for part in any_texts)
    return contains_any and all(_fold(part, ignore_case) in text for part in all_texts)


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


def _fold(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text
