"""Checks of evaluators' settings."""

import math
from typing import Any, get_args

from evalflows.specs.errors import short

_YAML = "in YAML, yes, no, on and off are only texts if they are quoted"


def checked_choice(setting: str, got: Any, wanted: Any) -> Any:
    """Return `got` if it is a value of the Literal `wanted`."""
    if got not in get_args(wanted):
        raise ValueError(f"{setting}: got {short(got)}, wanted {', '.join(get_args(wanted))}")
    return got


def checked_count(setting: str, got: Any) -> int:
    """Return `got` if it is a whole number of at least 1."""
    if not isinstance(got, int) or isinstance(got, bool) or got < 1:
        raise ValueError(f"{setting}: got {short(got)}, wanted a whole number of at least 1")
    return got


def checked_text(setting: str, got: Any) -> str:
    """Return `got` if it is a text that is not blank."""
    if not isinstance(got, str) or not got.strip():
        raise ValueError(f"{setting}: got {short(got)}, wanted a text ({_YAML})")
    return got


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number; bools are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
