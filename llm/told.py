"""What a provider says about its limits, in the headers of a response."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")


@dataclass(frozen=True, slots=True)
class Told:
    """How long to wait, in seconds, if it says so; and whether nothing is left of what may be asked for now."""

    wait_s: float | None = None
    is_empty: bool = False


def told(headers: Mapping[str, str]) -> Told:
    """Read Retry-After, `retry-after-ms`, and what is left in `x-ratelimit-*`. What cannot be read is not said."""
    asked = retry_after_s(headers)
    empty = [kind for kind in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{kind}") == "0"]
    resets = [reset for kind in empty if (reset := period_s(headers.get(f"x-ratelimit-reset-{kind}", ""))) is not None]
    return Told(asked if asked is not None else max(resets, default=None), bool(empty))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How many seconds a response asks to wait; None if it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return _until(headers.get("retry-after", ""))


def period_s(text: str) -> float | None:
    """Seconds of a period such as `6m0s`, `120ms` or `1.5`; None for anything else."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not _PERIOD.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text))


def _until(date: str) -> float | None:
    """Seconds until a date as HTTP writes it."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
