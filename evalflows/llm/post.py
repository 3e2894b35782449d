"""POST requests to the user's application, with limiter, timeout and retries; faults become CallErrors.

Its version is asked before a run.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from evalflows.llm.attempts import Attempts
from evalflows.llm.capped_client import MEGABYTE, CappedClient, Door, Opening, redirect, text_of
from evalflows.llm.connections import headers_of, secrets_of
from evalflows.llm.endpoint_errors import http_status_kind, is_page, message_in, not_json, remember_key
from evalflows.llm.ledger import current
from evalflows.llm.limiter import Limiter
from evalflows.llm.rate_limits import read_rate_limit
from evalflows.specs.addresses import origin_of
from evalflows.specs.errors import CallError, InputError, describe
from evalflows.specs.protocols import Post, Posted
from evalflows.specs.target import HttpTarget

LONGEST_MESSAGE = 500
LONGEST_VERSION = 100
"""In characters. A longer version of an application is replaced by its hash."""

NO_ANSWERS = ("text/html", "application/xhtml+xml", "text/event-stream", "application/x-ndjson")
"""Content types that are no answers as text, unless the spec names them: a login page, a stream."""

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 16


def poster(spec: HttpTarget) -> Post:
    """Return the function that posts for a target. Raise InputError if a header's environment variable is not set."""
    where = f"target {spec.name!r}"
    headers, secrets = headers_of(spec.headers, where, spec.url), secrets_of(spec.headers)
    for secret in secrets:
        remember_key(secret)
    client, limiter, door = _of(spec)

    who = f"target {spec.name!r} ({spec.url})"

    async def attempt(body: Any, added: Mapping[str, str]) -> Posted:
        async with limiter.turn():
            started, opening = time.perf_counter(), Opening(door)
            if recorder := current():
                recorder.check_can_keep() if recorder.request is None else recorder.begin(recorder.request)
            try:
                async with asyncio.timeout(spec.timeout_s):
                    response = await _post(client, spec.url, {**headers, **added}, body, opening)
                    latency = time.perf_counter() - started - opening.seconds
                version = response.headers.get(spec.version_header) if spec.version_header else None
                content = _content(response, spec.content_types)
                opening.settle(spec.url)
                return Posted(response=content, latency_s=latency, version=version and as_version(version))
            except TimeoutError:
                raise CallError("timeout", "no answer in time", cost_is_unknown=True) from None
            except CallError as error:
                raise _redacted(secrets, error) from None

    async def post(body: Any, headers: Mapping[str, str] = {}) -> Posted:
        attempts, cost_is_unknown = Attempts(spec.attempts, who, spec.max_wait_s), False
        while True:
            async with attempts:
                try:
                    posted = await attempt(body, headers)
                except CallError as error:
                    cost_is_unknown = error.cost_is_unknown = cost_is_unknown or error.cost_is_unknown
                    raise
                return replace(posted, attempts=attempts.made, cost_is_unknown=cost_is_unknown)

    return post


async def open_connections(spec: HttpTarget, count: int, run: str) -> None:
    """Open the connections of a run to an application before it is asked: as many as it may have, at most `count`."""
    client, _, door = _of(spec)
    await door.warm(client, spec.url, min(count, spec.max_in_flight), run)


def _of(spec: HttpTarget) -> "tuple[httpx2.AsyncClient, Limiter, Door]":
    return _shared(spec.url, spec.max_in_flight, spec.timeout_s, spec.max_response_mb)


def _redacted(secrets: list[str], error: CallError) -> CallError:
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "…")
    return CallError(
        error.kind,
        text[:LONGEST_MESSAGE],
        retry_after_s=error.retry_after_s,
        limit_is_empty=error.limit_is_empty,
        cost_is_unknown=error.cost_is_unknown,
    )


@cache
def _shared(
    url: str, max_in_flight: int, timeout_s: float, max_response_mb: float
) -> "tuple[httpx2.AsyncClient, Limiter, Door]":
    limits = httpx2.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight)
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # no state may pass from one example to another
    client = CappedClient(limits=limits, timeout=timeout_s, cookies=no_cookies)
    client.max_bytes = int(max_response_mb * MEGABYTE)
    return client, Limiter(max_in_flight, first=max_in_flight), Door()


async def _post(
    client: httpx2.AsyncClient, url: str, headers: dict[str, str], body: Any, opening: Opening
) -> httpx2.Response:
    """Make one attempt. Raise CallError unless the response is a success."""
    try:
        response = await client.post(url, json=body, headers=headers, extensions={"trace": opening})
    except httpx2.TimeoutException as error:
        was_sent = not isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout)
        raise CallError("timeout", "no answer in time", cost_is_unknown=was_sent) from error
    except httpx2.HTTPError as error:
        was_sent = not isinstance(error, httpx2.ConnectError)
        raise CallError("connection", f"{url}: {describe(error)}", cost_is_unknown=was_sent) from error
    if response.status_code >= 300:
        kind = http_status_kind(response.status_code)
        rate_limit = read_rate_limit(response.headers)
        said = message_in(text_of(response)).message
        message = redirect(response) or f"HTTP {response.status_code}: {said}"
        raise CallError(kind, message, retry_after_s=rate_limit.wait_s, limit_is_empty=rate_limit.is_empty)
    return response


def _content(response: httpx2.Response, content_types: Sequence[str]) -> Any:
    """Return the response as JSON, else as text."""
    text, header = text_of(response).removeprefix("\ufeff"), response.headers.get("content-type", "")
    try:
        return json.loads(text)
    except RecursionError:
        raise CallError("bad_answer", "the response is nested too deeply", cost_is_unknown=True) from None
    except ValueError:
        kind = header.partition(";")[0].strip().lower()
        is_other = kind in NO_ANSWERS or (not kind and is_page(text))
        is_json = "json" in kind and not is_other
        if is_json or (is_other and kind not in content_types):
            wanted = "wanted JSON" if is_json else f"wanted JSON or plain text, or `content_types: [{kind}]`"
            raise CallError("bad_answer", f"{not_json(header, text)}; {wanted}", cost_is_unknown=True) from None
        return text


def as_version(text: str) -> str:
    """Return a version in one line: of JSON its values, by name; a long one as its hash."""
    try:
        value = json.loads(text)
        line = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        line = text
    line = " ".join(line.split())
    return line if len(line) <= LONGEST_VERSION else hashlib.sha256(line.encode()).hexdigest()[:16]


def application_version(spec: HttpTarget) -> str | None:
    """Return the spec's `version`, else what `version_url` answers; None if the spec has neither.

    The target's headers are sent only to its own origin. Raise InputError if the address does not answer with a
    version.
    """
    if spec.version is not None or spec.version_url is None:
        return spec.version
    where = f"target {spec.name!r}: version_url: {spec.version_url}"
    is_own = origin_of(spec.version_url) == origin_of(spec.url)
    headers = headers_of(spec.headers if is_own else {}, f"target {spec.name!r}", spec.version_url)
    try:
        with (
            httpx2.Client(timeout=TIMEOUT_S) as client,
            client.stream("GET", spec.version_url, headers=headers) as response,
        ):
            body = next(response.iter_bytes(MAX_BYTES), b"")
    except httpx2.HTTPError as error:
        raise InputError(f"{where}: {describe(error)}") from error
    if response.status_code != 200:
        raise InputError(f"{where}: got HTTP {response.status_code}, wanted the application's version")
    if not (version := as_version(body.decode("utf-8", "replace"))):
        raise InputError(f"{where}: got an empty answer, wanted the application's version")
    return version
