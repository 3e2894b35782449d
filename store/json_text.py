"""Canonical JSON text: keys sorted, no spaces."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import orjson

Json = Annotated[str, "json"]

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
"""`json.loads` takes five times as long for a short text."""


def to_json(value: Any, *, mend: bool = False) -> Json:
    """Return canonical JSON text: keys sorted, no spaces.

    Raise TypeError or ValueError, in one line, for values that JSON in UTF-8 cannot represent (NaN, a lone surrogate).
    With `mend`, lone surrogates, which truncated streams contain, become U+FFFD.
    """
    text = _encoded(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        if not mend:
            raise
        return mended(text)
    return text


_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that orjson writes as Python's encoder does, which it does not for floats."""
_TEXT = frozenset({str})


def _encoded(value: Any) -> str:
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()  # in a tenth of the time
        except orjson.JSONEncodeError:  # a lone surrogate, or a number of more than 64 bits
            pass
    return _ENCODER.encode(value)


def from_json(text: Json | None) -> Any:
    """Parse JSON text; None stays None. Raise ValueError for a text that is not JSON."""
    if text is None:
        return None
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)  # which says where it is wrong
    return value if end == len(text) else json.loads(text)


def mended(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that the text is valid UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
