"""Ids and times of records that are not OpenTelemetry's protocol."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.store.observations import EPOCH
from evalflows.store.records import derived_id

_UNITS = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (math.inf, 1e9))
"""Below which a number counts how many parts of a second since 1970."""


def trace_id_of(source: str, identity: Any) -> str:
    """Return an id of 32 hex digits: the id itself if it has this form, also as a UUID, else one derived from it."""
    text = str(identity).strip()
    plain = (
        text.replace("-", "").lower()
        if re.fullmatch(r"[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}", text)
        else text
    )
    return _hexadecimal(plain, 32) or derived_id(source, "trace", text)


def span_id_of(source: str, identity: Any) -> str:
    """Return an id of 16 hex digits: the id itself if it has this form, else one derived from it."""
    text = str(identity).strip()
    return _hexadecimal(text, 16) or derived_id(source, "span", text)[:16]


def _hexadecimal(text: str, digits: int) -> str | None:
    is_id = re.fullmatch(rf"[\da-fA-F]{{{digits}}}", text) and text.strip("0")
    return text.lower() if is_id else None


def moment_of(value: Any, name: str) -> datetime | None:
    """Return a time of ISO 8601, in UTC unless it says otherwise, or in s, ms, µs or ns since 1970; None for none.

    Raise InputError if it is no time.
    """
    if value is None or value == "":
        return None
    try:
        return _of_number(float(value)) if _is_number(value) else _of_text(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name}: got {short(value)}, wanted a time such as 2026-01-31T12:00:00Z") from None


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(re.fullmatch(r"\s*\d{9,}(\.\d+)?\s*", value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_number(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError
    unit = next(unit for below, unit in _UNITS if abs(number) < below)
    return EPOCH + timedelta(microseconds=round(number / unit * 1e6))


def _of_text(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
    if not isinstance(value, datetime):
        raise TypeError
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def ended_at_of(started_at: datetime, ended_at: datetime | None, seconds: Any) -> datetime | None:
    """Return when something ended: as it says, or else by how long it took; None if neither is known."""
    if ended_at is not None or seconds is None or isinstance(seconds, bool):
        return ended_at
    try:
        return started_at + timedelta(seconds=float(seconds))
    except (ValueError, TypeError, OverflowError):
        return None
