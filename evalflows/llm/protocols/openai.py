"""OpenAI's chat completions and embeddings, by its SDK; also what others serve in the same form."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import httpx2
import openai

from evalflows.llm.batches import BatchService
from evalflows.llm.capped_client import text_of
from evalflows.llm.client import Client


class OpenAIClient(Client):
    """An OpenAI-compatible endpoint."""

    chat_path = "/chat/completions"

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._sdk = self._sdk_on(self._http)
        # Without a key no header says that there is one.
        sends_key = self._key is not None or self._has_header("authorization")
        self._own_headers: Any = {} if sends_key else {"Authorization": openai.Omit()}

    def _sdk_on(self, http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
        """Return the SDK on an HTTP client. A copy of one would read the environment again."""
        sdk = openai.AsyncOpenAI(http_client=http, **self._of_sdk)
        if not self._may_add_headers:
            sdk.organization = sdk.project = None
            sdk._custom_headers = self._headers
        return sdk

    def batches(self) -> BatchService:
        return self._batches

    @cached_property
    def _batches(self) -> BatchService:
        from evalflows.llm.protocols.openai_batches import OpenAIBatches  # late: most runs have none

        http = openai.DefaultAsyncHttpxClient(follow_redirects=False)
        return OpenAIBatches(self._sdk_on(http), self._own_headers, self._redacted)

    async def _send(self, path: str, request: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
        options: Any = {"headers": self._own_headers}
        raw = await self._sdk.post(path, body=request, options=options, cast_to=httpx2.Response)
        return text_of(raw), raw.headers
