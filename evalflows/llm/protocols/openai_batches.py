"""OpenAI's batch interface: a file of requests, of which each is answered within 24 hours for half the price."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import openai
import orjson
from openai.types import Batch

from evalflows.llm.batches import Remote
from evalflows.llm.protocols.sdk_batches import UPLOAD_TIMEOUT_S, SDKBatches
from evalflows.specs.errors import CallError

NAME = "evalflows_batch"
"""The field of a batch's metadata that holds our name of it."""

OVER = frozenset({"completed", "failed", "expired", "cancelled"})

CLOCKS_APART = timedelta(minutes=10)
"""How much a provider's clock may be behind ours."""


class OpenAIBatches(SDKBatches):
    """See `BatchService`."""

    def __init__(
        self, sdk: openai.AsyncOpenAI, headers: Mapping[str, Any], redacted: Callable[[CallError], CallError]
    ) -> None:
        """Args: sdk: does not retry, as a second try could create a second batch; headers: sent with each request;
        redacted: returns an error without the connection's secrets."""
        super().__init__(redacted)
        self._sdk, self._headers = sdk, dict(headers)

    def line(self, call_id: str, operation: str, request: Mapping[str, Any]) -> bytes:
        entry = {"custom_id": call_id, "method": "POST", "url": f"/v1{operation}", "body": request}
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)

    async def find(self, name: str, since: datetime, rows: int) -> Remote | None:
        with self._faults():
            async for batch in self._sdk.batches.list(limit=100, extra_headers=self._headers):  # the newest first
                if (batch.metadata or {}).get(NAME) == name:
                    return _remote(batch)
                if batch.created_at < (since - CLOCKS_APART).timestamp():
                    break
        return None

    async def submit(self, name: str, operation: str, requests: Path) -> Remote:
        options: Any = {"extra_headers": self._headers, "timeout": UPLOAD_TIMEOUT_S}
        with self._faults(), requests.open("rb") as content:
            file = await self._sdk.files.create(file=(f"{name}.jsonl", content), purpose="batch", **options)
            made = await self._sdk.batches.create(
                input_file_id=file.id,
                endpoint=f"/v1{operation}",  # type: ignore[arg-type]
                completion_window="24h",
                metadata={NAME: name},
                **options,
            )
            return _remote(made)

    async def look(self, identity: str) -> Remote:
        with self._faults():
            return _remote(await self._sdk.batches.retrieve(identity, extra_headers=self._headers))

    async def fetch(self, remote: Remote, into: IO[bytes]) -> None:
        content = self._sdk.files.with_streaming_response.content
        with self._faults():
            for file in remote.files:
                async with content(file, extra_headers=self._headers) as response:
                    last = b"\n"
                    async for chunk in response.iter_bytes():
                        into.write(chunk)
                        last = chunk[-1:] or last
                    if last != b"\n":
                        into.write(b"\n")

    async def cancel(self, identity: str) -> None:
        with self._faults(), suppress(openai.ConflictError):  # it is over
            await self._sdk.batches.cancel(identity, extra_headers=self._headers)

    async def tidy(self, remote: Remote) -> None:
        with suppress(openai.APIError):  # some gateways cannot; the provider deletes them in time
            for file in filter(None, (remote.input_file, *remote.files)):
                await self._sdk.files.delete(file, extra_headers=self._headers)


def _remote(batch: Batch) -> Remote:
    """Return what a batch says. Raise ValueError if it is none."""
    if not isinstance(batch.id, str) or not isinstance(batch.status, str):
        raise ValueError("no batch")
    counts, errors = batch.request_counts, (batch.errors.data if batch.errors else None) or []
    said = "; ".join(dict.fromkeys(error.message for error in errors[:3] if error.message))
    return Remote(
        identity=batch.id,
        state=batch.status,
        is_over=batch.status in OVER,
        answered=counts.completed if counts else 0,
        failed=counts.failed if counts else 0,
        is_cancelled=batch.status == "cancelled",
        error=said or None,
        files=tuple(file for file in (batch.output_file_id, batch.error_file_id) if file),
        input_file=batch.input_file_id,
    )
