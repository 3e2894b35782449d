"""Parse the cells of a label file: a number, yes or no, a category, a thumb up or down."""

import math
from dataclasses import dataclass
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.metric import MAX_NUMBER
from evalflows.store.records import DataType

YES, NO = ("true", "yes"), ("false", "no")
UP, DOWN = (
    ("up", "thumbs_up", "positive", "like", "+1", "👍"),
    ("down", "thumbs_down", "negative", "dislike", "-1", "👎"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelValue:
    """A label's value as stored."""

    value: float | None = None
    label: str | None = None
    data_type: DataType


def parse_value(value: Any) -> LabelValue:
    """Parse yes or no, a finite number, or else a category. Raises InputError for nan, infinity and other types."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in (*YES, *NO):
            return LabelValue(value=float(word in YES), data_type="BOOLEAN")
        return _number_or_label(value.strip())
    if isinstance(value, bool):
        return LabelValue(value=float(value), data_type="BOOLEAN")
    if isinstance(value, int | float):
        return LabelValue(value=finite_number("value", value), data_type="NUMERIC")
    raise InputError(f"value: got {type(value).__name__}, wanted a number, yes or no, or a label")


def parse_feedback(value: Any) -> LabelValue:
    """Parse a thumb up or down. Raises InputError for anything else."""
    word = str(value).strip().lower()
    if word in (*UP, *YES, "1", "1.0"):
        return LabelValue(value=1.0, data_type="BOOLEAN")
    if word in (*DOWN, *NO, "0", "0.0", "-1.0"):
        return LabelValue(value=0.0, data_type="BOOLEAN")
    raise InputError(f"feedback: got {value!r}, wanted up or down (or 1 and 0, yes and no, like and dislike)")


def finite_number(name: str, value: Any) -> float:
    """Parse a finite number. Raises InputError for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: got {value!r}, wanted a number") from None
    if not math.isfinite(number):
        raise InputError(f"{name}: got {value!r}, wanted a finite number")
    if abs(number) > MAX_NUMBER:
        raise InputError(f"{name}: got {value!r}, wanted a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    return number


def whole_number(name: str, value: Any) -> int:
    """Parse a whole number of at least 0. Raises InputError for anything else."""
    number = finite_number(name, value)
    if number != int(number) or number < 0:
        raise InputError(f"{name}: got {value!r}, wanted a whole number of at least 0")
    return int(number)


def _number_or_label(text: str) -> LabelValue:
    try:
        float(text)
    except ValueError:
        return LabelValue(label=text, data_type="CATEGORICAL")
    return LabelValue(value=finite_number("value", text), data_type="NUMERIC")
