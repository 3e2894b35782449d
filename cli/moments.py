"""Moments that options give."""

from datetime import UTC, datetime

from evalflows.specs.errors import InputError


def moment(option: str, text: str | None) -> datetime | None:
    """Return a moment that an option gives; in UTC unless it says otherwise. Raise InputError if it is none."""
    if text is None:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{option}: got {text!r}, wanted a date or time such as 2026-11-01T08:00") from error
    return given if given.tzinfo else given.replace(tzinfo=UTC)
