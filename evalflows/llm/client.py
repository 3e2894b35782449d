"""The client of one endpoint: a single attempt at a call, sent by the SDK of its protocol (`protocols/`)."""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import openai

from evalflows.llm.capped_client import MEGABYTE, CappedClient, Door, Opening, opening
from evalflows.llm.connections import SENT_BY_SDK, SHORTEST_KEY, secrets_of, without_key
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, as_kept_json, classify, error_in, not_json
from evalflows.specs.connections import ConnectionSpec, RemoteConnection
from evalflows.specs.errors import CallError, describe
from evalflows.specs.frozen import dataclass
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
    """An endpoint's response: its JSON body, in OpenAI's form, and its headers."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    opening_s: float = 0.0  # seconds that the request waited for its connection to be opened


class _CappedAioClient(CappedClient, openai.DefaultAioHttpClient):
    """A client for the SDKs."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request, within the timeouts of this client: Google's SDK sends none.

        The SDK would pass on what aiohttp raises for a malformed response or for many headers.
        """
        request.extensions = {**request.extensions, "timeout": self.timeout.as_dict()}
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


class Client(ABC):
    """An endpoint, asked in OpenAI's form. It does not retry, since every 429 must reach the limiter."""

    chat_path: str
    """Where calls go, below the base URL."""

    def __init__(
        self, base_url: str, key: str | None, connection: ConnectionSpec, headers: Mapping[str, str] | None = None
    ) -> None:
        """Args: base_url: may have a query, sent with each call; headers: the connection's, with their secrets."""
        self._connection, self._timeout_s, self._headers = connection, connection.timeout_s, headers or {}
        given = connection.headers if isinstance(connection, RemoteConnection) else {}
        self._key, self._secrets = key, [secret for secret in (key, *secrets_of(given)) if secret]
        self._timeout = httpx2.Timeout(connection.timeout_s)
        if isinstance(connection, RemoteConnection):
            read = connection.read_timeout_s or connection.timeout_s
            self._timeout = httpx2.Timeout(read, connect=connection.connect_timeout_s)
        # A call over aiohttp takes two thirds of the CPU time of one over httpx, whose pool checks every connection
        # for every request. The number of connections is unlimited here because the limiter controls it.
        limits = httpx2.Limits(max_connections=0)
        self._http = _CappedAioClient(limits=limits, timeout=self._timeout, follow_redirects=False)
        self._http.max_bytes = int(connection.max_response_mb * MEGABYTE)
        self._door, parts = Door(), urlsplit(base_url)
        self._base_url = parts._replace(path=parts.path.rstrip("/"), query="", fragment="").geturl()
        self._query = dict(parse_qsl(parts.query, keep_blank_values=True))
        path = f"{parts.path.rstrip('/')}{self.chat_path}"
        self._url = parts._replace(path=path, fragment="").geturl()

    @abstractmethod
    async def _send(self, path: str, request: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
        """Return the text and the headers of the response to a request in OpenAI's form."""

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a response's body in OpenAI's form; as it is, if it is no answer."""
        return body

    @property
    def _of_sdk(self) -> dict[str, Any]:
        """What an SDK is made with, besides its HTTP client."""
        return {
            "base_url": self._base_url,
            "api_key": self._key or "none",
            "max_retries": 0,
            "timeout": self._timeout,
            "default_headers": self._headers,
            "default_query": self._query,
        }

    @property
    def _may_add_headers(self) -> bool:
        """Whether the SDK may send this address what it takes from the environment by itself."""
        names = SENT_BY_SDK.get(self._connection.kind, SENT_BY_SDK["endpoint"])
        return all(may_receive(self._base_url, variable(name)) for name in names)

    def _has_header(self, name: str) -> bool:
        return any(header.lower() == name for header in self._headers)

    async def close(self) -> None:
        await self._http.aclose()

    def batches(self) -> "BatchService | None":
        """Return the endpoint's batch interface; None if it has none."""
        return None

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
                    text, headers = await self._send(path, request)
        except TimeoutError:
            said = f"no complete answer within {self._timeout_s:g} s"
            return CallError("timeout", said, cost_is_unknown=True)
        except Exception as error:
            fault = classify(error)
            if fault.kind == "connection":  # whose text may only say that something was refused
                fault.args = (f"{self._base_url}: {fault}",)
            return self._redacted(fault)
        try:
            body = json.loads(_json_in(self.without_secrets(text)))
        except RecursionError:
            return self._redacted(_unreadable("the answer is nested too deeply", text))
        except ValueError:
            return self._redacted(_unreadable(not_json(headers.get("content-type", ""), text), text))
        if not isinstance(body, dict):
            return self._redacted(_unreadable(f"the answer is {type(body).__name__}, wanted a mapping", text))
        try:
            body = self._answer(body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return self._redacted(_unreadable(f"the answer cannot be read: {describe(error)}", text))
        if (failure := error_in(body, text)) is not None:
            return self._redacted(failure)
        made.settle(self._url)
        return Response(body, headers, made.seconds)

    def without_secrets(self, text: str) -> str:
        """Redact the key and the secrets in headers in what was received: only long ones, as a short key may be a plain
        word, as with local servers."""
        return self._without_key(text, MIN_PROVIDER_KEY_CHARS)

    def _redacted(self, fault: CallError) -> CallError:
        """Return an error without the key, and without its cause, which may contain it."""
        fault.args = (self._without_key(str(fault)),)
        fault.received = fault.received and self._without_key(fault.received)
        fault.__cause__ = fault.__context__ = None
        return fault

    def _without_key(self, text: str, shortest: int = SHORTEST_KEY) -> str:
        """Redact the key and the secrets in headers: providers quote what they reject."""
        for secret in self._secrets:
            text = without_key(text, secret, shortest)
        return text
