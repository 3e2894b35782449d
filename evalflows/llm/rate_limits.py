"""Rate limits that a provider states in the headers of its answers."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from evalflows.specs.frozen import dataclass

LONGEST_CREDIBLE_S = 7 * 86400.0
"""The longest wait, in seconds, that a provider may ask for: a longer one is no answer to how soon to try again."""
LONGEST_PERIOD = 40
"""Characters of a period; a longer one is no period, and might be infinite as a number."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OF_ANTHROPIC = ("requests", "tokens", "input-tokens", "output-tokens")
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Seconds to wait, if the provider said so, and whether its current allowance is used up."""

    wait_s: float | None = None
    is_empty: bool = False


def read_rate_limit(headers: Mapping[str, str]) -> RateLimit:
    """Read Retry-After, `retry-after-ms`, and `x-ratelimit-*` or Anthropic's.

    What cannot be parsed or is not credible is ignored.
    """
    retry_after = retry_after_s(headers)
    empty = [kind for kind in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{kind}") == "0"]
    periods = [period_s(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in empty]
    used_up = [kind for kind in _OF_ANTHROPIC if headers.get(f"anthropic-ratelimit-{kind}-remaining") == "0"]
    periods += [_until(headers.get(f"anthropic-ratelimit-{kind}-reset", "")) for kind in used_up]
    resets = [reset for period in periods if (reset := _credible(period)) is not None]
    is_empty = bool(empty or used_up)
    return RateLimit(retry_after if retry_after is not None else max(resets, default=None), is_empty)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait; None if it does not say, or nothing credible."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            if (seconds := _credible(float(headers[name]) * unit)) is not None:
                return seconds
    return _credible(_until(headers.get("retry-after", "")))


def _credible(seconds: float | None) -> float | None:
    """Return a wait; None for one that is negative, not finite, or longer than a week."""
    return seconds if seconds is not None and 0.0 <= seconds <= LONGEST_CREDIBLE_S else None


def period_s(text: str) -> float | None:
    """Return a period such as `6m0s`, `120ms` or `1.5` in seconds; None for anything else."""
    text = text.strip().lower()
    if len(text) > LONGEST_PERIOD:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not _PERIOD.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text))


def _until(date: str) -> float | None:
    """Return the seconds until a date of HTTP or of RFC 3339; None if it is neither."""
    try:
        then = datetime.fromisoformat(date) if date[:4].isdigit() else parsedate_to_datetime(date)
        return max(0.0, (then - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
