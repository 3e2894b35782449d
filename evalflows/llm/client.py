"""HTTP client for one endpoint: a single attempt at a call, made with the OpenAI SDK."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import openai

from evalflows.llm.capped_client import MEGABYTE, CappedClient, Door, Opening, opening, text_of
from evalflows.llm.connections import SENT_BY_SDK, SHORTEST_KEY, secrets_of, without_key
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, as_kept_json, classify, error_in, not_json
from evalflows.specs.connections import ConnectionSpec, EndpointConnection
from evalflows.specs.errors import CallError
from evalflows.specs.permitted import may_receive, variable

if TYPE_CHECKING:
    from evalflows.llm.batches import BatchService

LONGEST_MESSAGE = 200
"""Most characters of what is said about a malformed response."""


def _json_in(text: str) -> str:
    """Return a text without the mark of its byte order, and without comments of an event stream before the JSON."""
    return re.sub(r"\A(\s*:[^\n]*\n)+", "", text.removeprefix("\ufeff"))


def _unreadable(message: str, text: str) -> CallError:
    error = CallError("bad_answer", message, cost_is_unknown=True)
    error.received = as_kept_json(text)
    return error


@dataclass(frozen=True, slots=True)
class Response:
    """An endpoint's response: its JSON body and its headers."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    opening_s: float = 0.0  # seconds that the request waited for its connection to be opened


class _CappedAioClient(CappedClient, openai.DefaultAioHttpClient):
    """A client for the SDK."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request. The SDK would pass on what aiohttp raises for a malformed response or for many headers."""
        try:
            return await super().send(request, stream=stream, **options)
        except aiohttp.ClientResponseError as error:
            what = " ".join(error.message.split())[:LONGEST_MESSAGE]
            message = f"the response is not HTTP, or too large: {what}"
            raise CallError("bad_answer", message, cost_is_unknown=True) from None

    def _init_transport(self, *given: Any, **settings: Any) -> httpx2.AsyncBaseTransport:
        return _traced(super()._init_transport(*given, **settings))

    def _init_proxy_transport(self, *given: Any, **settings: Any) -> httpx2.AsyncBaseTransport:
        return _traced(super()._init_proxy_transport(*given, **settings))


def _traced(transport: Any) -> httpx2.AsyncBaseTransport:
    """Make the SDK's transport, which has its own session of aiohttp, tell the Opening of each request."""

    def session() -> aiohttp.ClientSession:
        transport.client = None  # so that it makes one
        made: aiohttp.ClientSession = transport.get_client()
        made.trace_configs.append(_trace())
        return made

    transport.client = session
    traced: httpx2.AsyncBaseTransport = transport
    return traced


def _trace() -> aiohttp.TraceConfig:
    async def begin(*_: object) -> None:
        if made := opening():
            await made.begin()

    async def end(*_: object) -> None:
        if made := opening():
            await made.end()

    async def answered(_session: object, _context: object, ended: aiohttp.TraceRequestEndParams) -> None:
        version = ended.response.version
        if (made := opening()) and version is not None:
            made.answered(f"HTTP/{version.major}.{version.minor}", ended.response.headers.items())

    config = aiohttp.TraceConfig()
    config.on_connection_create_start.append(begin)
    config.on_connection_create_end.append(end)
    config.on_request_end.append(answered)
    config.freeze()
    return config


class Client:
    """An OpenAI-compatible endpoint. It does not retry, since every 429 must reach the limiter."""

    def __init__(
        self, base_url: str, key: str | None, connection: ConnectionSpec, headers: Mapping[str, str] | None = None
    ) -> None:
        """Args: base_url: may have a query, sent with each call; headers: the connection's, with their secrets."""
        self._connection, self._timeout_s, headers = connection, connection.timeout_s, headers or {}
        given = connection.headers if isinstance(connection, EndpointConnection) else {}
        self._secrets = [secret for secret in (key, *secrets_of(given)) if secret]
        timeout = httpx2.Timeout(connection.timeout_s)
        if isinstance(connection, EndpointConnection):
            read = connection.read_timeout_s or connection.timeout_s
            timeout = httpx2.Timeout(read, connect=connection.connect_timeout_s)
        # A call over aiohttp takes two thirds of the CPU time of one over httpx, whose pool checks every connection
        # for every request. The number of connections is unlimited here because the limiter controls it.
        limits = httpx2.Limits(max_connections=0)
        http = _CappedAioClient(limits=limits, timeout=timeout, follow_redirects=False)
        http.max_bytes = int(connection.max_response_mb * MEGABYTE)
        self._http, self._door = http, Door()
        parts = urlsplit(base_url)
        self._url = parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions", fragment="").geturl()
        self._sdk = openai.AsyncOpenAI(
            base_url=parts._replace(query="", fragment="").geturl(),
            api_key=key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=http,
            default_headers=headers,
            default_query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        )
        # Without a key no header says that there is one.
        sends_key = key is not None or any(name.lower() == "authorization" for name in headers)
        self._options: Any = {} if sends_key else {"headers": {"Authorization": openai.Omit()}}
        if not all(may_receive(base_url, variable(name)) for name in SENT_BY_SDK):
            self._sdk.organization = self._sdk.project = None
            self._sdk._custom_headers = headers
        self._batches: BatchService | None = None

    async def close(self) -> None:
        await self._sdk.close()

    def batches(self) -> "BatchService | None":
        """Return the endpoint's batch interface; None if it has none."""
        if not isinstance(self._connection, EndpointConnection):
            return None
        if self._batches is None:
            from evalflows.llm.openai_batches import OpenAiBatches  # late: most runs have none

            self._batches = OpenAiBatches(self._sdk, self._redacted)
        return self._batches

    async def open_connections(self, count: int, run: str) -> None:
        """Open the connections of a run before its first call: as many as there may be, at most `count`."""
        await self._door.warm(self._http, self._url, min(count, self._connection.max_in_flight), run)

    async def post(self, path: str, request: Mapping[str, Any]) -> Response:
        """Make one attempt at an operation such as `/chat/completions`. Raise CallError.

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
                with Opening(self._door) as made:
                    raw = await self._sdk.post(path, body=request, options=self._options, cast_to=httpx2.Response)
        except TimeoutError:
            text = f"no complete answer within {self._timeout_s:g} s"
            return CallError("timeout", text, cost_is_unknown=True)
        except Exception as error:
            return self._redacted(classify(error))
        text = text_of(raw)
        try:
            body = json.loads(_json_in(self._without_key(text, MIN_PROVIDER_KEY_CHARS)))
        except RecursionError:
            return self._redacted(_unreadable("the answer is nested too deeply", text))
        except ValueError:
            return self._redacted(_unreadable(not_json(raw.headers.get("content-type", ""), text), text))
        if not isinstance(body, dict):
            return self._redacted(_unreadable(f"the answer is {type(body).__name__}, wanted a mapping", text))
        fault = error_in(body, text)
        if fault is not None:
            return self._redacted(fault)
        made.settle(self._url)
        return Response(body, raw.headers, made.seconds)

    def _redacted(self, fault: CallError) -> CallError:
        """Return an error without the key, and without its cause, which may contain it."""
        fault.args = (self._without_key(str(fault)),)
        fault.received = fault.received and self._without_key(fault.received)
        fault.__cause__ = fault.__context__ = None
        return fault

    def _without_key(self, text: str, shortest: int = SHORTEST_KEY) -> str:
        """Redact the key and the secrets in headers: providers quote what they reject.

        In answers only long ones: a short key may be a plain word, as with local servers.
        """
        for secret in self._secrets:
            text = without_key(text, secret, shortest)
        return text
