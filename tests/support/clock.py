"""A clock that is set back."""

from datetime import datetime, timedelta, tzinfo

import pytest

from evalflows.store import records

DAY = timedelta(days=1)


def set_clock_back(patch: pytest.MonkeyPatch, by: timedelta = DAY) -> None:
    """From now on, the clock is that much behind."""
    clock = records._clock

    def earlier(zone: tzinfo | None = None) -> datetime:
        return clock(zone) - by

    patch.setattr(records, "_clock", earlier)
