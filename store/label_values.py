"""What a cell of a file of labels says: a number, yes or no, a label, a thumb."""

import math
from dataclasses import dataclass
from typing import Any

from specs.errors import InputError
from store.records import DataType

YES, NO = ("true", "yes"), ("false", "no")
UP, DOWN = (
    ("up", "thumbs_up", "positive", "like", "+1", "👍"),
    ("down", "thumbs_down", "negative", "dislike", "-1", "👎"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A label as it is kept."""

    value: float | None = None
    label: str | None = None
    data_type: DataType


def given_value(value: Any) -> Given:
    """Yes and no, a finite number, else a label. Raises InputError for nan, infinity, and what is none of these."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in (*YES, *NO):
            return Given(value=float(word in YES), data_type="BOOLEAN")
        return _number_or_label(value.strip())
    if isinstance(value, bool):
        return Given(value=float(value), data_type="BOOLEAN")
    if isinstance(value, int | float):
        return Given(value=number_in("value", value), data_type="NUMERIC")
    raise InputError(f"value: got {type(value).__name__}, wanted a number, yes or no, or a label")


def feedback(value: Any) -> Given:
    """A thumb up or down. Raises InputError for anything else."""
    word = str(value).strip().lower()
    if word in (*UP, *YES, "1", "1.0"):
        return Given(value=1.0, data_type="BOOLEAN")
    if word in (*DOWN, *NO, "0", "0.0", "-1.0"):
        return Given(value=0.0, data_type="BOOLEAN")
    raise InputError(f"feedback: got {value!r}, wanted up or down (or 1 and 0, yes and no, like and dislike)")


def number_in(name: str, value: Any) -> float:
    """A finite number. Raises InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: got {value!r}, wanted a number") from None
    if not math.isfinite(number):
        raise InputError(f"{name}: got {value!r}, wanted a finite number")
    return number


def whole_number(name: str, value: Any) -> int:
    """A whole number of at least 0. Raises InputError."""
    number = number_in(name, value)
    if number != int(number) or number < 0:
        raise InputError(f"{name}: got {value!r}, wanted a whole number from 0")
    return int(number)


def _number_or_label(text: str) -> Given:
    try:
        float(text)
    except ValueError:
        return Given(label=text, data_type="CATEGORICAL")
    return Given(value=number_in("value", text), data_type="NUMERIC")
