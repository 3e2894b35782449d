"""HTTP client for one endpoint: a single attempt at a call, made with the OpenAI SDK."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx2
import openai

from evalflows.llm.capped_client import MEGABYTE, CappedClient
from evalflows.llm.connections import SENT_BY_SDK, without_key
from evalflows.llm.faults import MIN_PROVIDER_KEY_CHARS, classify
from evalflows.specs.errors import CallError, describe
from evalflows.specs.permitted import may_receive, variable
from evalflows.specs.running import ConnectionSpec, EndpointConnection

LONGEST_MESSAGE = 200
"""Most characters of what is said about a malformed response."""


@dataclass(frozen=True, slots=True)
class Response:
    """An endpoint's response: its JSON body and its headers."""

    body: dict[str, Any]
    headers: Mapping[str, str]


class _CappedAioClient(CappedClient, openai.DefaultAioHttpClient):
    """A client for the SDK."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """The same. The SDK would pass on as it is what aiohttp raises for a malformed response or many headers."""
        try:
            return await super().send(request, stream=stream, **options)
        except aiohttp.ClientResponseError as error:
            what = " ".join(error.message.split())[:LONGEST_MESSAGE]
            message = f"the response is not HTTP, or too large: {what}"
            raise CallError("bad_answer", message, cost_is_unknown=True) from None


class Client:
    """An OpenAI-compatible endpoint. It does not retry, since every 429 must reach the limiter."""

    def __init__(self, base_url: str, key: str | None, connection: ConnectionSpec) -> None:
        self._key, self._connection, self._timeout_s = key, connection, connection.timeout_s
        timeout = httpx2.Timeout(connection.timeout_s)
        if isinstance(connection, EndpointConnection):
            read = connection.read_timeout_s or connection.timeout_s
            timeout = httpx2.Timeout(read, connect=connection.connect_timeout_s)
        # A call over aiohttp takes two thirds of the CPU time of one over httpx, whose pool checks every connection
        # for every request. The number of connections is unlimited here because the limiter controls it.
        limits = httpx2.Limits(max_connections=0)
        http = _CappedAioClient(limits=limits, timeout=timeout, follow_redirects=False)
        http.max_bytes = int(connection.max_response_mb * MEGABYTE)
        self._sdk = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=http,
        )
        if not all(may_receive(base_url, variable(name)) for name in SENT_BY_SDK):
            self._sdk.organization = self._sdk.project = None
            self._sdk._custom_headers = {}

    async def close(self) -> None:
        await self._sdk.close()

    async def post(self, path: str, request: Mapping[str, Any]) -> Response:
        """Make one attempt at an operation such as `/chat/completions`. Raises CallError.

        The SDK only sends and reads: converting JSON to its own objects and back would cost a third of a call's time.
        """
        response = await self._attempt(path, request)
        if isinstance(response, CallError):
            # Without a cause, which may contain the key, and without its frames, which hold what was received.
            raise response.with_traceback(None)
        return response

    async def _attempt(self, path: str, request: Mapping[str, Any]) -> Response | CallError:
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._sdk.post(path, body=request, cast_to=httpx2.Response)
            body = json.loads(self._without_key(raw.text) if self._has_provider_key else raw.text)
        except (ValueError, RecursionError) as error:
            return CallError("bad_answer", f"the answer is not JSON: {describe(error)}", cost_is_unknown=True)
        except TimeoutError:
            text = f"no complete answer within {self._timeout_s:g} s"
            return CallError("timeout", text, cost_is_unknown=True)
        except Exception as error:
            fault = classify(error)
            fault.args = (self._without_key(str(fault)),)
            fault.__cause__ = fault.__context__ = None
            return fault
        if not isinstance(body, dict):
            text = f"the answer is {type(body).__name__}, wanted a mapping"
            return CallError("bad_answer", text, cost_is_unknown=True)
        return Response(body, raw.headers)

    @property
    def _has_provider_key(self) -> bool:
        """Whether the key is redacted in answers too. A short key may be a plain word, as with local servers."""
        return len(self._key or "") >= MIN_PROVIDER_KEY_CHARS

    def _without_key(self, text: str) -> str:
        """Redact the key: providers quote what they reject."""
        return without_key(text, self._key)
