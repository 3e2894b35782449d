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
        self._sdk = openai.AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._key or "none",
            max_retries=0,
            timeout=self._timeout,
            http_client=self._http,
            default_headers=self._headers,
            default_query=self._query,
        )
        # Without a key no header says that there is one.
        sends_key = self._key is not None or self._has_header("authorization")
        self._options: Any = {} if sends_key else {"headers": {"Authorization": openai.Omit()}}
        if not self._may_add_headers:
            self._sdk.organization = self._sdk.project = None
            self._sdk._custom_headers = self._headers

    def batches(self) -> BatchService:
        return self._batches

    @cached_property
    def _batches(self) -> BatchService:
        from evalflows.llm.protocols.openai_batches import OpenAIBatches  # late: most runs have none

        return OpenAIBatches(self._sdk, self._redacted)

    async def _send(self, path: str, request: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
        raw = await self._sdk.post(path, body=request, options=self._options, cast_to=httpx2.Response)
        return text_of(raw), raw.headers
