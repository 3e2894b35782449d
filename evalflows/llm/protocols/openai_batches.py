"""OpenAI's batch interface: a file of requests, of which each is answered within 24 hours for half the price."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import openai
import orjson
from openai.types import Batch

from evalflows.llm.batches import Remote
from evalflows.llm.endpoint_errors import classify
from evalflows.specs.errors import CallError

NAME = "evalflows_batch"
"""The field of a batch's metadata that holds our name of it."""

OVER = frozenset({"completed", "failed", "expired", "cancelled"})

CLOCKS_APART = timedelta(minutes=10)
"""How much a provider's clock may be behind ours."""

UPLOAD_TIMEOUT_S = 600.0


class OpenAIBatches:
    """See `BatchService`. The SDK's own HTTP client sends: files may be larger than any answer."""

    def __init__(self, sdk: openai.AsyncOpenAI, redacted: Any) -> None:
        """Args: redacted: returns an error without the connection's secrets."""
        self._sdk, self._redacted = sdk.copy(http_client=openai.DefaultAsyncHttpxClient()), redacted

    def line(self, call_id: str, operation: str, request: Mapping[str, Any]) -> bytes:
        entry = {"custom_id": call_id, "method": "POST", "url": f"/v1{operation}", "body": request}
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)

    async def find(self, name: str, since: datetime, rows: int) -> Remote | None:
        try:
            async for batch in self._newest():
                if (batch.metadata or {}).get(NAME) == name:
                    return _remote(batch)
                if batch.created_at < (since - CLOCKS_APART).timestamp():
                    return None
        except Exception as error:
            raise self._fault(error) from None
        return None

    async def submit(self, name: str, operation: str, requests: Path) -> Remote:
        once = self._sdk.with_options(
            max_retries=0, timeout=UPLOAD_TIMEOUT_S
        )  # a second try could create a second batch
        try:
            with requests.open("rb") as content:
                file = await once.files.create(file=(f"{name}.jsonl", content), purpose="batch")
            made = await once.batches.create(
                input_file_id=file.id,
                endpoint=f"/v1{operation}",  # type: ignore[arg-type]
                completion_window="24h",
                metadata={NAME: name},
            )
            return _remote(made)
        except Exception as error:
            raise self._fault(error) from None

    async def look(self, identity: str) -> Remote:
        try:
            return _remote(await self._sdk.batches.retrieve(identity))
        except Exception as error:
            raise self._fault(error) from None

    async def fetch(self, remote: Remote, into: IO[bytes]) -> None:
        try:
            for file in remote.files:
                async with self._sdk.files.with_streaming_response.content(file) as response:
                    last = b"\n"
                    async for chunk in response.iter_bytes():
                        into.write(chunk)
                        last = chunk[-1:] or last
                    if last != b"\n":
                        into.write(b"\n")
        except Exception as error:
            raise self._fault(error) from None

    async def cancel(self, identity: str) -> None:
        try:
            await self._sdk.batches.cancel(identity)
        except openai.ConflictError:  # it is over
            return
        except Exception as error:
            raise self._fault(error) from None

    async def tidy(self, remote: Remote) -> None:
        for file in filter(None, (remote.input_file, *remote.files)):
            try:
                await self._sdk.files.delete(file)
            except openai.APIError:  # some gateways cannot; the provider deletes them in time
                return

    async def _newest(self) -> AsyncIterator[Batch]:
        """Yield all batches, the newest first."""
        async for batch in self._sdk.batches.list(limit=100):
            yield batch

    def _fault(self, error: Exception) -> CallError:
        if isinstance(error, AttributeError | KeyError | TypeError | ValueError):  # of what is no batch
            return CallError("bad_request", "the endpoint answers as one that has no batches")
        fault: CallError = self._redacted(classify(error))
        return fault


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
