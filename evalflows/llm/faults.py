"""Classify failed attempts: the kind of error, and its message without keys."""

import json
import sys
from typing import TypeGuard

from evalflows.llm.connections import SHORTEST_KEY, without_key
from evalflows.llm.endpoint_errors import error_of_response, http_status_kind
from evalflows.specs.code_versions import fault_text, trace_of
from evalflows.specs.errors import UNREACHABLE, CallError, describe

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
        from evalflows.llm.capped_client import redirect, text_of  # late: with it comes the HTTP client

        response = error.response
        if message := redirect(response):
            return CallError(http_status_kind(error.status_code), message)
        return error_of_response(error.status_code, response.headers, text_of(response))
    if isinstance(error, openai.APIConnectionError):
        return CallError("connection", describe(root), cost_is_unknown=was_sent)
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError | UnicodeDecodeError):
        return CallError("bad_answer", f"the answer cannot be read: {describe(error)}", cost_is_unknown=True)
    if isinstance(error, openai.APIError):  # such as a stream that ended in an error
        return CallError("server_error", describe(error), cost_is_unknown=True)
    raise error


def _is_of_connecting(error: BaseException | None) -> bool:
    """Return whether no connection was made, so that nothing was sent and nothing is paid.

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
    """Return whether an error is one of the SDK, which is then loaded."""
    sdk = sys.modules.get("openai")
    return sdk is not None and isinstance(error, sdk.APIError)
