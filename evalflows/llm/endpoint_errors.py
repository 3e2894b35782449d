"""Errors of attempts at a call: their kind, and their message in one line without keys; also what an endpoint says of
an error, in whatever shape, and how long to wait.

Providers, gateways and proxies agree on no shape: `{"error": {…}}`, `{"error": "…"}`, `{"detail": […]}`, a list of
these, plain text, an HTML page; with a status of 4xx or 5xx, or with HTTP 200.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalflows.llm.connections import SHORTEST_KEY, without_key
from evalflows.llm.rate_limits import RateLimit, period_s, read_rate_limit
from evalflows.specs.code_versions import fault_text, trace_of
from evalflows.specs.errors import UNREACHABLE, CallError, ErrorKind, describe
from evalflows.specs.frozen import dataclass
from evalflows.store.records import to_json

LONGEST_MESSAGE = 500
LONGEST_KEPT = 20_000
"""Characters of a response that are kept with a failed call."""
MAX_DEPTH = 8

_MESSAGES = ("error", "message", "detail", "errors", "error_message", "msg", "status_msg", "base_resp", "title")
"""The fields that hold a message, or an object with one; the first that does counts."""
_CODES = ("code", "type", "status", "status_code", "reason", "innererror", "error", "base_resp")

_MEANINGS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (
        re.compile(r"insufficient[_ ](quota|balance|credit|fund)|monthly quota|out of credit|credit balance", re.I),
        "quota_exhausted",
    ),
    (
        re.compile(
            r"content[_ ]?(filter|polic|management)|responsibleai|moderation|safety (system|polic)|flagged"
            r"|invalid_prompt|prohibited_content|usage polic",
            re.I,
        ),
        "refused",
    ),
    (
        re.compile(
            r"throttl|rate.?limit|too many requests|(tokens|requests) per min|\b[tr]pm\b|resource_exhausted|overloaded",
            re.I,
        ),
        "rate_limited",
    ),
    (
        re.compile(
            r"context[_ ](length|size|window)|(prompt|input|request)( is|'s)? too (long|large)"
            r"|too many (input )?tokens|maximum (model|context|input|prompt) length|input token count"
            r"|longer than the maximum|exceeds? the (available|maximum|model's) (context|input|prompt|number of tokens)"
            r"|reduce the length of",
            re.I,
        ),
        "context_too_long",
    ),
    (re.compile(r"api[_ ]key[_ ](invalid|expired|not valid)", re.I), "authentication"),
    (re.compile(r"json_validate_failed|tool_use_failed|failed to (generate json|call a function)", re.I), "bad_answer"),
)
"""What codes and messages mean, in the order in which they are tried: too many tokens a minute are no long prompt."""
_OPEN_STATUSES = (400, 403, 413, 422, 429)
"""Those that say too little by themselves: providers use them for several kinds."""

_UNSTATED: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (re.compile(r"unauthori[sz]ed|api.?key|secret key|credentials|login fail|forbidden", re.I), "authentication"),
    (re.compile(r"not found|does not exist|not support|invalid|unknown|required", re.I), "bad_request"),
)
"""What messages mean that come with no status at all."""

_WAIT = re.compile(r"(?:retry|try again)[^.]{0,20}? in (\d[\d.hms]*)\s*(milliseconds|seconds|minutes|hours)?", re.I)
_UNITS = {"milliseconds": "ms", "seconds": "s", "minutes": "m", "hours": "h"}

_REFUSED = re.compile(
    r"(un|not )support|invalid value|may only be|unavailable|unknown|unrecogni[sz]ed|deprecated"
    r"|not (allowed|permitted)|extra|should be",
    re.I,
)
BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
"""What JSON schemas say of values, and strict ones do not."""
_OF_SCHEMA = re.compile(
    rf"\bstrict\b|\badditionalProperties\b|\b({'|'.join(BOUNDS)})\b"
    r"|(schema|propert).*\brequired\b|\brequired\b.*(schema|propert)"
)
_HINTS = {
    "max_tokens": "`max_completion_tokens` in place of `max_tokens` of the target",
    "max_completion_tokens": "`max_tokens` of the target, or no `max_completion_tokens` among `args` of the evaluator",
    "temperature": "no `temperature` of the target, or `args: {temperature: null}` of the evaluator",
    "reasoning_effort": "no `reasoning_effort` of the target, or among `args` of the evaluator",
    "response_format": "`answer_form: tool_call` or `answer_form: text` of the connection",
    "tool_choice": "`answer_form: json_schema` or `answer_form: text` of the connection",
    "tools": "no `tools` of the target, or `answer_form: text` of the connection",
}
"""The lines of a spec that help if a model refuses a parameter."""

MIN_PROVIDER_KEY_CHARS = 16
"""Shortest key, in characters, that is redacted in answers too: a shorter one may be a plain word."""

_SDKS = ("openai", "anthropic", "google", "httpx2")
_HTTP_CLIENTS = ("requests", "httpx", "aiohttp", "urllib3")
"""The packages whose errors are known. Those of the SDKs have equal names."""

_keys: set[str] = set()
"""Keys of the user's own clients, whose errors and answers pass through the user's own code."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the body of a response says of an error."""

    message: str  # in one line
    codes: str = ""  # all codes, types and states
    status: int | None = None  # an HTTP status among them
    wait_s: float | None = None  # that it asks for


def http_status_kind(status: int) -> ErrorKind:
    """Return the kind of error that an HTTP status means by itself."""
    match status:
        case 401 | 403:
            return "authentication"
        case 402:
            return "quota_exhausted"
        case 413:
            return "context_too_long"
        case 408:
            return "timeout"
        case 429 | 498 | 529:  # 498, 529: the provider's capacity is used up
            return "rate_limited"
        case 409 | 424 | 425:  # in conflict, a dependency failed, too early
            return "server_error"
    return "server_error" if status >= 500 else "bad_request"


def message_in(text: str) -> Said:
    """Return what a response says of an error; in place of no message, what it is."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return Said(_line(_of_page(text)) or "an empty response")
    message = _message(body) or _line(text)
    if (name := _parameter(body)) and not re.search(rf"\b{re.escape(name)}\b", message):
        message = f"{name}: {message}"
    codes = [*_codes(body)]
    status = next((int(code) for code in codes if re.fullmatch(r"[45]\d\d", code)), None)
    return Said(_line(message), " ".join(codes), status, _wait_s(body, message))


def error_kind(status: int, said: Said) -> ErrorKind:
    """Return the kind of an error by its status and, where that says too little, by its codes and its message."""
    by_status = http_status_kind(status)
    return _kind_in(said, _MEANINGS, by_status) if status in _OPEN_STATUSES else by_status


def _kind_in(said: Said, meanings: Iterable[tuple[re.Pattern[str], ErrorKind]], default: ErrorKind) -> ErrorKind:
    """Return the kind that codes and message mean."""
    text = f"{said.codes} {said.message}"
    return next((kind for pattern, kind in meanings if pattern.search(text)), default)


def error_of_response(status: int, headers: Mapping[str, str], text: str) -> CallError:
    """Return the error that a response with a status of 4xx or 5xx says."""
    said, rate_limit = message_in(text), read_rate_limit(headers)
    return _error(error_kind(status, said), f"HTTP {status}: {said.message}", said, rate_limit, text)


def error_in(body: Mapping[str, Any], text: str) -> CallError | None:
    """Return the error that the body of a response with status 200 holds in place of an answer; None if there is none.

    Its kind is that of the status in it; without one, that of its codes and message, else `server_error`.
    """
    is_answer = any(body.get(name) for name in ("choices", "data"))
    if is_answer or not (body.get("error") or body.get("object") == "error" or _states_failure(body)):
        return None
    said = message_in(text)
    kind = error_kind(said.status, said) if said.status else _kind_in(said, (*_MEANINGS, *_UNSTATED), "server_error")
    return _error(kind, f"HTTP 200 with an error: {said.message}", said, RateLimit(), text)


def error_in_choice(choice: Mapping[str, Any], finish: str) -> CallError:
    """Return the error with which a choice of an answer ended."""
    said = message_in(json.dumps({"error": choice.get("error") or choice.get("native_finish_reason")}))
    message = f"the answer ended with {finish!r}"
    if choice.get("error") or choice.get("native_finish_reason"):
        message += f": {said.message}"
    return CallError(error_kind(said.status, said) if said.status else "server_error", message)


def spec_hint(request: Mapping[str, Any], message: str) -> str | None:
    """Return which line of the spec helps against a message that refuses a parameter of the request; None if none."""
    if refuses_schema(request, message):
        return _HINTS["response_format"]
    sent = [name for name in request if name not in ("model", "messages") and re.search(rf"\b{name}\b", message)]
    if not sent or not _REFUSED.search(message):
        return None
    return _HINTS.get(sent[0], f"no `{sent[0]}` of the target, nor in its `extra`")


def refuses_schema(request: Mapping[str, Any], message: str) -> bool:
    """Return whether a message refuses how the JSON schema of a request is written."""
    return request.get("response_format") is not None and _OF_SCHEMA.search(message) is not None


def not_json(content_type: str, text: str) -> str:
    """Return what came in place of JSON: its content type and its first characters."""
    if not text.strip():
        return "the response is empty"
    what = content_type.partition(";")[0].strip() or "no content type"
    start = _line(_of_page(text))
    return f"the response is not JSON: got {what}: {start[:120]}{'…' if len(start) > 120 else ''}"


def is_page(text: str) -> bool:
    """Return whether a text is an HTML page."""
    return bool(re.match(r"\s*(<!doctype html|<html|<head|<body)", text, re.IGNORECASE))


def as_kept_json(text: str) -> str:
    """Return a response as JSON, to be kept with a failed call; of a long one the beginning."""
    try:
        body = json.loads(text, parse_constant=str) if len(text) <= LONGEST_KEPT else text[:LONGEST_KEPT]
    except (ValueError, RecursionError):
        body = text
    return to_json({"body": body}, mend=True)


def _error(kind: ErrorKind, message: str, said: Said, rate_limit: RateLimit, text: str) -> CallError:
    wait_s = said.wait_s if rate_limit.wait_s is None else rate_limit.wait_s
    error = CallError(kind, message, retry_after_s=wait_s, limit_is_empty=rate_limit.is_empty)
    error.received = as_kept_json(text)
    return error


def _states_failure(body: Mapping[str, Any]) -> bool:
    """Return whether a body without an answer says what failed, as FastAPI or MiniMax do."""
    state = body.get("base_resp")
    is_failed = isinstance(state, Mapping) and state.get("status_code") not in (0, None)
    return is_failed or bool(body.get("detail") or body.get("errors"))


def _message(body: Any, depth: int = 0) -> str:
    """Return the message in a body; an empty text if there is none."""
    if isinstance(body, str):
        return body
    if depth == MAX_DEPTH:
        return ""
    if isinstance(body, list):
        return "; ".join(text for item in body[:3] if (text := _message(item, depth + 1)))
    if not isinstance(body, Mapping):
        return ""
    if isinstance(body.get("msg"), str) and isinstance(body.get("loc"), list):  # of FastAPI
        return f"{'.'.join(map(str, body['loc']))}: {body['msg']}"
    message = next((found for name in _MESSAGES if (found := _message(body.get(name), depth + 1))), "")
    inner = body.get("metadata")
    if isinstance(inner, Mapping) and isinstance(inner.get("raw"), str):  # what a gateway got from the provider
        message += f" ({inner.get('provider_name') or 'provider'}: {message_in(inner['raw']).message})"
    return message


def _parameter(body: Any) -> str | None:
    """Return the parameter that OpenAI's error is about, which its message may not name."""
    error = body.get("error") if isinstance(body, Mapping) else None
    name = error.get("param") if isinstance(error, Mapping) else None
    return name if isinstance(name, str) and re.fullmatch(r"[a-z_]{1,40}", name) else None


def _codes(body: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(body, list) and depth < MAX_DEPTH:
        for item in body[:3]:
            yield from _codes(item, depth + 1)
    if isinstance(body, Mapping) and depth < MAX_DEPTH:
        for name in _CODES:
            value = body.get(name)
            if isinstance(value, str | int) and not (name == "error" and isinstance(value, str)):
                yield str(value)
            else:
                yield from _codes(value, depth + 1)


def _wait_s(body: Any, message: str) -> float | None:
    """Return the wait that a body asks for: Google's `retryDelay`, or a message such as `try again in 20s`."""
    delay = re.search(r'"retryDelay": "([\dhms.]+)"', json.dumps(body))
    if delay and (seconds := period_s(delay[1])) is not None:
        return seconds
    found = _WAIT.search(message)
    return period_s(found[1].rstrip(".") + _UNITS.get((found[2] or "").lower(), "")) if found else None


def _of_page(text: str) -> str:
    """Return a text; of an HTML page its title or heading, else its text."""
    if not is_page(text):
        return text
    title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text[:LONGEST_KEPT], re.IGNORECASE | re.DOTALL)
    shown = title[2] if title else re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text[:LONGEST_KEPT], flags=re.DOTALL)
    return f"an HTML page: {html.unescape(shown)}"


def _line(text: str) -> str:
    return " ".join(text[:LONGEST_KEPT].split())[:LONGEST_MESSAGE]


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


def classify(error: BaseException) -> CallError:
    """Return an exception of an SDK or its HTTP client as a CallError. Re-raise any other: it is a bug of ours."""
    root = _root(error)
    if isinstance(root, CallError):  # the SDK wraps what its client raises
        return root
    if isinstance(error, CallError):
        return error
    was_sent = not _is_of_connecting(error)
    timeouts = ("APITimeoutError", "TimeoutException")
    if _is_of_sdk(error, *timeouts) and (isinstance(root, TimeoutError) or _is_of_sdk(root, *timeouts)):
        return CallError("timeout", "no answer in time", cost_is_unknown=was_sent)
    if _is_of_sdk(error, "APIConnectionError", "TransportError"):
        return CallError("connection", describe(root), cost_is_unknown=was_sent)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) or _is_of_sdk(error, "APIResponseValidationError"):
        return CallError("bad_answer", f"the answer cannot be read: {describe(error)}", cost_is_unknown=True)
    if not _is_of_sdk(error, "APIError"):
        raise error
    response: Any = getattr(error, "response", None)
    if not hasattr(response, "has_redirect_location"):  # such as a stream that ended in an error
        return CallError("server_error", describe(error), cost_is_unknown=True)
    from evalflows.llm.capped_client import redirect, text_of  # late: with it comes the HTTP client

    if message := redirect(response):
        return CallError(http_status_kind(response.status_code), message)
    return error_of_response(response.status_code, response.headers, text_of(response))


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
    """Return what the user's own code raised: the error of a call, their own OpenAI client's too, a service that it did
    not reach, else `raised`.

    It has the user's frames, unless the model or the service was not reached: that is no fault of their code.
    """
    is_known = isinstance(error, CallError) or _is_of_sdk(error, "APIError")
    fault = classify(error) if is_known else CallError(_unreached(error) or "raised", fault_text(error))
    fault.args = (without_keys(str(fault)),)
    if fault.kind not in UNREACHABLE and (trace := fault.trace or trace_of(error)):
        fault.trace = without_keys(trace)
    return fault


def _unreached(error: BaseException) -> ErrorKind | None:
    """Return how the user's own code did not reach a service; None for any other error."""
    if isinstance(reason := getattr(error, "reason", None), OSError):  # of urllib's URLError
        error = reason
    bases = type(error).__mro__
    names = {kind.__name__ for kind in bases if kind.__module__.partition(".")[0] in ("builtins", *_HTTP_CLIENTS)}
    if not names.isdisjoint(("TimeoutError", "Timeout", "TimeoutException")):
        return "timeout"
    lost = ("ConnectionError", "ClientConnectionError", "TransportError")
    return None if names.isdisjoint(lost) else "connection"


def _is_of_sdk(error: BaseException, *names: str) -> bool:
    """Return whether an error is one of these of an SDK or its HTTP client, by name: they are slow to import."""
    kinds = type(error).__mro__
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] in _SDKS for kind in kinds)
