"""What a failed attempt means: its kind, and how long to wait before the next."""

import json
import random
import re

import openai

from llm.connections import without_secrets
from llm.told import told
from specs.connection import LocalConnection
from specs.errors import CallError, ErrorKind, describe

_TOO_LONG = re.compile(r"context (length|size|window)|prompt is too long|too many (input )?tokens", re.IGNORECASE)
"""How servers say it that have no code for it."""

_NOWHERE = LocalConnection()

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 600.0
"""However long a provider asks to wait: a run that waits longer is better broken off and resumed."""

SHORTEST_OF_A_PROVIDER = 16
"""Characters of a key that is put out of answers too: what is shorter may be a word, as local servers have them."""

_keys: set[str] = set()
"""Of the user's own clients, whose errors and answers pass through the user's own code."""


def remember_key(key: str | None) -> None:
    """Have a key put out of whatever the user's own code makes of errors and answers that quote it."""
    if key:
        _keys.add(key)


def without_keys(text: str, shortest: int = 0) -> str:
    """A text without the keys of the user's own clients, of those at least that have so many characters."""
    for key in tuple(_keys):  # another thread may add one
        if len(key) >= shortest:
            text = without_secrets(text, _NOWHERE, key)
    return text


def classify(error: Exception) -> CallError:
    """An exception of the OpenAI SDK as one of ours. Unknown exceptions are raised again: they are faults of ours."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, openai.APITimeoutError) and isinstance(_root(error), TimeoutError | openai.APITimeoutError):
        return CallError("timeout", "no answer in time")
    if isinstance(error, openai.APIStatusError):
        said = told(error.response.headers)
        kind, text = _status_kind(error), _status_message(error)
        return CallError(kind, text, retry_after_s=said.wait_s, limit_is_empty=said.is_empty)
    if isinstance(error, openai.APIConnectionError):
        return CallError("connection", describe(_root(error)))
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError | UnicodeDecodeError):
        return CallError("bad_answer", f"the answer cannot be read: {describe(error)}")
    if isinstance(error, openai.APIError):
        return CallError("server_error", describe(error))  # such as a stream that ended in an error
    raise error


def _root(error: BaseException) -> BaseException:
    """What lies at the bottom: on the way up, a connection that was cut is taken for one that came too late."""
    return error if error.__cause__ is None else _root(error.__cause__)


def fault_of(error: Exception | SystemExit) -> CallError:
    """What the user's own code raised: a call's error, also of an OpenAI client of theirs, else that it raised."""
    fault = classify(error) if isinstance(error, CallError | openai.APIError) else CallError("raised", describe(error))
    fault.args = (without_keys(str(fault)),)
    return fault


def pause_s(attempt: int, retry_after_s: float | None) -> float:
    """Seconds to wait after the attempt numbered from 1: what the provider asked for, else doubling, with jitter."""
    if retry_after_s is not None:
        return min(LONGEST_WAIT_S, retry_after_s + random.uniform(0, 0.1 * retry_after_s))
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)


def _status_kind(error: openai.APIStatusError) -> ErrorKind:
    code, status = str(getattr(error, "code", "") or ""), error.status_code
    if code == "insufficient_quota":
        return "quota_exhausted"
    if "content_filter" in code or "content_policy" in code:
        return "refused"
    if "context_length" in code or (status == 400 and _TOO_LONG.search(_message(error))):
        return "context_too_long"
    return http_status_kind(status)


def http_status_kind(status: int) -> ErrorKind:
    """What an HTTP status says by itself."""
    if status in (401, 403):
        return "authentication"
    if status == 402:
        return "quota_exhausted"
    if status == 413:
        return "context_too_long"
    if status == 408:
        return "timeout"
    if status == 429:
        return "rate_limited"
    return "server_error" if status >= 500 or status == 409 else "bad_request"


def _message(error: openai.APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return " ".join(str(body.get("message") or error.message).split())


def _status_message(error: openai.APIStatusError) -> str:
    return f"HTTP {error.status_code}: {_message(error)[:500]}"
