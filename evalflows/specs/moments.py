"""Moments that texts and programs give."""

from datetime import UTC, datetime

from evalflows.specs.errors import InputError


def in_utc(moment: datetime) -> datetime:
    """Return a moment: in UTC unless it says otherwise."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def moment_in(where: str, text: str | None, wanted: str = "a date or time such as 2026-11-01T08:00") -> datetime | None:
    """Return the moment that a text gives; None for none. Raise InputError if it gives no moment."""
    try:
        return None if text is None else in_utc(datetime.fromisoformat(text))
    except ValueError:
        raise InputError(f"{where}: got {text!r}, wanted {wanted}") from None
