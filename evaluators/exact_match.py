from typing import Any

from evaluators.text import pick


def exact_match(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    key: str | None = None,
    ignore_case: bool = False,
    strip: bool = True,
) -> bool | None:
    """Whether the answer equals the reference. None where an example has no reference.

    Compared is the field `key`, or the only field of each side whatever its name, or else the whole of both.
    """
    if reference_outputs is None:
        return None
    answer, wanted = (_plain(pick(side, key), ignore_case, strip) for side in (outputs, reference_outputs))
    return bool(answer == wanted)


def _plain(value: Any, ignore_case: bool, strip: bool) -> Any:
    if isinstance(value, list):
        return [_plain(one, ignore_case, strip) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one, ignore_case, strip) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    value = value.strip() if strip else value
    return value.casefold() if ignore_case else value
