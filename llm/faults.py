"""What a failed attempt means: its kind, and how long to wait before the next."""

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import openai

from specs.errors import CallError, ErrorKind, describe

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 600.0
"""However long a provider asks to wait: a run that waits longer is better broken off and resumed."""


def classify(error: Exception) -> CallError:
    """An exception of the OpenAI SDK as one of ours. Unknown exceptions are raised again: they are faults of ours."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, openai.APITimeoutError):
        return CallError("timeout", "no answer in time")
    if isinstance(error, openai.APIStatusError):
        pause = retry_after_s(error.response.headers)
        return CallError(_status_kind(error), _status_message(error), retry_after_s=pause)
    if isinstance(error, openai.APIConnectionError):
        return CallError("connection", describe(error.__cause__ or error))
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError | UnicodeDecodeError):
        return CallError("bad_answer", f"the answer cannot be read: {describe(error)}")
    raise error


def pause_s(attempt: int, retry_after_s: float | None) -> float:
    """Seconds to wait after the attempt numbered from 1: what the provider asked for, else doubling, with jitter."""
    if retry_after_s is not None:
        return min(LONGEST_WAIT_S, retry_after_s + random.uniform(0, 0.1 * retry_after_s))
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)


def _status_kind(error: openai.APIStatusError) -> ErrorKind:
    code, status = str(getattr(error, "code", "") or ""), error.status_code
    if code == "insufficient_quota":
        return "quota_exhausted"
    if "context_length" in code:
        return "context_too_long"
    if "content_filter" in code or "content_policy" in code:
        return "refused"
    return http_status_kind(status)


def http_status_kind(status: int) -> ErrorKind:
    """What an HTTP status says by itself."""
    if status in (401, 403):
        return "authentication"
    if status == 408:
        return "timeout"
    if status == 429:
        return "rate_limited"
    return "server_error" if status >= 500 or status == 409 else "bad_request"


def _status_message(error: openai.APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    text = " ".join(str(body.get("message") or error.message).split())
    return f"HTTP {error.status_code}: {text[:500]}"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How many seconds a response asks to wait; None if it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return _until(headers.get("retry-after", ""))


def _until(date: str) -> float | None:
    """Seconds until a date as HTTP writes it."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
