from typing import Any

from evalflows.evaluators.direction import needs_reference
from evalflows.evaluators.explained import explained, quoted
from evalflows.evaluators.text import pick


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
) -> bool | None:
    """Whether the answer equals the reference. None if the example has no reference.

    It compares the field `key`, or the only field of each side whatever its name, or else all of both.
    """
    if reference_outputs is None:
        return None
    answer, expected = (_plain(pick(side, key), ignore_case, strip) for side in (outputs, reference_outputs))
    return bool(answer == expected)


def _plain(value: Any, ignore_case: bool, strip: bool) -> Any:
    if isinstance(value, list):
        return [_plain(item, ignore_case, strip) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item, ignore_case, strip) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    value = value.strip() if strip else value
    return value.casefold() if ignore_case else value
