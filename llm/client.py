"""One endpoint: a single attempt at a call, as the OpenAI SDK makes it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from llm.connections import without_secrets
from llm.faults import SHORTEST_OF_A_PROVIDER, classify
from specs.connection import ConnectionSpec, EndpointConnection
from specs.errors import CallError, describe


@dataclass(frozen=True, slots=True)
class Response:
    """What an endpoint answered: JSON, and the headers."""

    body: dict[str, Any]
    headers: Mapping[str, str]


class Client:
    """An OpenAI-compatible endpoint. It does not retry: every 429 must reach the limiter."""

    def __init__(self, base_url: str, key: str | None, connection: ConnectionSpec) -> None:
        self._key, self._connection, self._timeout_s = key, connection, connection.timeout_s
        timeout = httpx2.Timeout(connection.timeout_s)
        if isinstance(connection, EndpointConnection):
            read = connection.read_timeout_s or connection.timeout_s
            timeout = httpx2.Timeout(read, connect=connection.connect_timeout_s)
        # Over aiohttp a call takes two thirds of the processor's time that it takes over httpx, whose pool looks at
        # every connection for every request. How many there are is the limiter's to say.
        http = openai.DefaultAioHttpClient(limits=httpx2.Limits(max_connections=0), timeout=timeout)
        self._sdk = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=http,
        )

    async def close(self) -> None:
        await self._sdk.close()

    async def post(self, path: str, request: Mapping[str, Any]) -> Response:
        """One attempt at an operation such as `/chat/completions`. Raises CallError.

        The SDK sends and reads; what it would do besides, to turn JSON into its own objects and back, costs a third
        of a call's time and is left out.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._sdk.post(path, body=request, cast_to=httpx2.Response)
            body = json.loads(self._without_key(raw.text) if self._has_provider_key else raw.text)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CallError("bad_answer", f"the answer is not JSON: {describe(error)}") from error
        except TimeoutError as error:
            raise CallError("timeout", f"no whole answer within {self._timeout_s:g} s") from error
        except Exception as error:
            fault = classify(error)
            fault.args = (self._without_key(str(fault)),)
            raise fault from None  # what lies beneath may bear the key
        if not isinstance(body, dict):
            raise CallError("bad_answer", f"the answer is {type(body).__name__}, wanted a mapping")
        return Response(body, raw.headers)

    @property
    def _has_provider_key(self) -> bool:
        """Whether a key is put out of answers too. A short one may be a word, as local servers have them."""
        return len(self._key or "") >= SHORTEST_OF_A_PROVIDER

    def _without_key(self, text: str) -> str:
        """Providers quote the key that they refuse, and some an address with a password in it."""
        return without_secrets(text, self._connection, self._key)
