"""Classify failed attempts: the kind of error, and its message without keys."""

import json
import re
import sys
from typing import TYPE_CHECKING, TypeGuard

from evalflows.llm.connections import SHORTEST_KEY, without_key
from evalflows.llm.rate_limits import read_rate_limit
from evalflows.specs.code_versions import fault_text, trace_of
from evalflows.specs.errors import UNREACHABLE, CallError, ErrorKind, describe

if TYPE_CHECKING:
    import openai


_TOO_LONG = re.compile(r"context (length|size|window)|prompt is too long|too many (input )?tokens", re.IGNORECASE)
"""Messages of servers that have no error code for it."""

MIN_PROVIDER_KEY_CHARS = 16
"""Shortest key, in characters, that is redacted in answers too: a shorter one may be a plain word."""

_keys: set[str] = set()
"""Keys of the user's own clients, whose errors and answers pass through the user's own code."""


def remember_key(key: str | None) -> None:
    """Redact this key from now on, in errors and answers that pass through the user's own code."""
    if key:
        _keys.add(key)


def without_keys(text: str, min_chars: int = SHORTEST_KEY) -> str:
    """Redact the keys of the user's own clients that have at least `min_chars` characters.

    If the end of the text cuts a key in two, that many must be left of it: a comment may end with a word that a key
    begins with.
    """
    for key in sorted(_keys, key=len, reverse=True):  # one may begin with another
        text = without_key(text, key, min_chars)
    return text


def classify(error: Exception) -> CallError:
    """Return an exception of the OpenAI SDK as a CallError. Re-raise any other exception: it is a bug of ours."""
    root = _root(error)
    if isinstance(root, CallError):  # the SDK wraps what its client raises
        return root
    if isinstance(error, CallError):
        return error
    import openai  # late: it is slow to import

    was_sent = not _is_of_connecting(error)
    if isinstance(error, openai.APITimeoutError) and isinstance(root, TimeoutError | openai.APITimeoutError):
        return CallError("timeout", "no answer in time", cost_is_unknown=was_sent)
    if isinstance(error, openai.APIStatusError):
        rate_limit = read_rate_limit(error.response.headers)
        kind, text = _status_kind(error), _status_message(error)
        return CallError(kind, text, retry_after_s=rate_limit.wait_s, limit_is_empty=rate_limit.is_empty)
    if isinstance(error, openai.APIConnectionError):
        return CallError("connection", describe(root), cost_is_unknown=was_sent)
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError | UnicodeDecodeError):
        return CallError("bad_answer", f"the answer cannot be read: {describe(error)}", cost_is_unknown=True)
    if isinstance(error, openai.APIError):  # such as a stream that ended in an error
        return CallError("server_error", describe(error), cost_is_unknown=True)
    raise error


def _is_of_connecting(error: BaseException | None) -> bool:
    """Whether no connection was made, so that nothing was sent and nothing is paid.

    The SDK's transport turns every fault of an aiohttp connection into a ConnectTimeout: there, aiohttp's own decides.
    """
    found = False
    while error is not None:
        name = type(error).__name__
        if type(error).__module__.startswith("aiohttp."):
            return name.startswith("ClientConnector") or name == "ConnectionTimeoutError"
        found = found or name in ("ConnectError", "ConnectTimeout", "PoolTimeout")
        error = error.__cause__
    return found


def _root(error: BaseException) -> BaseException:
    """Return the root cause: the SDK wraps a dropped connection as if it were a timeout."""
    return error if error.__cause__ is None else _root(error.__cause__)


def fault_of(error: BaseException) -> CallError:
    """Return what the user's own code raised: the error of a call, their own OpenAI client's too, else `raised`.

    It has the user's frames, unless the model was not reached: that is no fault of their code.
    """
    fault = (
        classify(error) if isinstance(error, CallError) or _is_of_sdk(error) else CallError("raised", fault_text(error))
    )
    fault.args = (without_keys(str(fault)),)
    if fault.kind not in UNREACHABLE and (trace := fault.trace or trace_of(error)):
        fault.trace = without_keys(trace)
    return fault


def _is_of_sdk(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error is one of the SDK, which is then loaded."""
    sdk = sys.modules.get("openai")
    return sdk is not None and isinstance(error, sdk.APIError)


def _status_kind(error: "openai.APIStatusError") -> ErrorKind:
    code, status = str(getattr(error, "code", "") or ""), error.status_code
    if code == "insufficient_quota":
        return "quota_exhausted"
    if "content_filter" in code or "content_policy" in code:
        return "refused"
    if "context_length" in code or (status == 400 and _TOO_LONG.search(_message(error))):
        return "context_too_long"
    return http_status_kind(status)


def http_status_kind(status: int) -> ErrorKind:
    """Return the kind of error that an HTTP status means by itself."""
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


def _message(error: "openai.APIStatusError") -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return " ".join(str(body.get("message") or error.message).split())


def _status_message(error: "openai.APIStatusError") -> str:
    from evalflows.llm.capped_client import redirect

    return redirect(error.response) or f"HTTP {error.status_code}: {_message(error)[:500]}"
