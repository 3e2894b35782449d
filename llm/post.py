"""Posting to the user's application: limiter, time-out, attempts, and faults as ours."""

import asyncio
import json
import os
import re
import time
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from llm.attempts import attempted
from llm.faults import http_status_kind, remember_key
from llm.limiter import Limiter, outcome_of
from llm.told import Told, told
from specs.errors import CallError, InputError, describe
from specs.paths import filled
from specs.protocols import Post, Posted
from specs.target import HttpTarget

LONGEST_MESSAGE = 500
SHORTEST_SECRET = 4
"""Characters: what is shorter is no secret, and would blot out half of a message."""


def poster(spec: HttpTarget) -> Post:
    """What posts for a target. Raises InputError for a header whose environment variable is not set."""
    headers, secrets = headers_of(spec), secrets_of(spec)
    for secret in secrets:
        remember_key(secret)
    client, limiter = _shared(spec.url, spec.max_in_flight, spec.timeout_s)

    async def once(body: Any) -> tuple[Any, float]:
        place = await limiter.acquire()
        began, failure = time.perf_counter(), None
        try:
            async with asyncio.timeout(spec.timeout_s):
                return await _posted(client, spec.url, headers, body), time.perf_counter() - began
        except TimeoutError:
            failure = CallError("timeout", "no answer in time")
            raise failure from None
        except CallError as error:
            failure = _without(secrets, error)
            raise failure from None
        finally:
            said = Told(failure.retry_after_s, failure.limit_is_empty) if failure else None
            limiter.release(place, outcome_of(failure), said)

    async def post(body: Any) -> Posted:
        (response, latency), attempts = await attempted(lambda: once(body), spec.attempts)
        return Posted(response=response, attempts=attempts, latency_s=latency)

    return post


def headers_of(spec: HttpTarget) -> dict[str, str]:
    """The headers with the environment's values.

    Raises InputError for a variable that is not set, and for what no header can be, without telling the value.
    """
    headers = {}
    for name, value in spec.headers.items():
        where = f"target {spec.name!r}: headers: {name}"
        headers[name] = filled(value, where).strip()
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(r"[\t\x20-\x7e]*", headers[name]):
            raise InputError(f"{where}: cannot be sent as a header, wanted plain characters in one line")
    return headers


def secrets_of(spec: HttpTarget) -> list[str]:
    """The values that the headers take from the environment: they must not turn up in any message."""
    names = {name for value in spec.headers.values() for name in re.findall(r"\$\{(\w+)\}", value)}
    return [value for name in names if len(value := os.environ.get(name, "").strip()) >= SHORTEST_SECRET]


def _without(secrets: list[str], error: CallError) -> CallError:
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "…")
    wait, empty = error.retry_after_s, error.limit_is_empty
    return CallError(error.kind, text[:LONGEST_MESSAGE], retry_after_s=wait, limit_is_empty=empty)


@cache
def _shared(url: str, max_in_flight: int, timeout_s: float) -> tuple[httpx2.AsyncClient, Limiter]:
    limits = httpx2.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight)
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # no example must see what another one left
    client = httpx2.AsyncClient(limits=limits, timeout=timeout_s, cookies=no_cookies)
    return client, Limiter(max_in_flight)


async def _posted(client: httpx2.AsyncClient, url: str, headers: dict[str, str], body: Any) -> Any:
    """One attempt: the response as JSON, else as text."""
    try:
        response = await client.post(url, json=body, headers=headers)
    except httpx2.TimeoutException as error:
        raise CallError("timeout", "no answer in time") from error
    except httpx2.HTTPError as error:
        raise CallError("connection", describe(error)) from error
    if response.status_code >= 300:
        text = " ".join(response.text.split()) or response.headers.get("location", "")
        kind = http_status_kind(response.status_code)
        said = told(response.headers)
        message = f"HTTP {response.status_code}: {text}"
        raise CallError(kind, message, retry_after_s=said.wait_s, limit_is_empty=said.is_empty)
    try:
        return json.loads(response.text.removeprefix("\ufeff"))
    except RecursionError:
        raise CallError("bad_answer", "the response is nested too deeply") from None
    except ValueError:
        if "json" in response.headers.get("content-type", ""):
            raise CallError("bad_answer", "the response says that it is JSON, and is not") from None
        return response.text
