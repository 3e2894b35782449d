"""Settings of evaluators, checked. Each raises ValueError in one line: the setting, what was got, what was wanted."""

import math
from typing import Any, get_args

from specs.errors import short

_YAML = "in YAML, yes, no, on and off are no texts unless they are quoted"


def one_of(setting: str, got: Any, wanted: Any) -> Any:
    """A value of the Literal `wanted`."""
    if got not in get_args(wanted):
        raise ValueError(f"{setting}: got {short(got)}, wanted {', '.join(get_args(wanted))}")
    return got


def a_count(setting: str, got: Any) -> int:
    """A whole number of at least 1."""
    if not isinstance(got, int) or isinstance(got, bool) or got < 1:
        raise ValueError(f"{setting}: got {short(got)}, wanted a whole number of at least 1")
    return got


def a_text(setting: str, got: Any) -> str:
    """A text that says something."""
    if not isinstance(got, str) or not got.strip():
        raise ValueError(f"{setting}: got {short(got)}, wanted a text ({_YAML})")
    return got


def is_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
