"""Anthropic's batch interface: requests of Messages, each answered within 24 hours for half the price."""

from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import anthropic
import orjson
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

from evalflows.llm.batches import Remote
from evalflows.llm.protocols.sdk_batches import UPLOAD_TIMEOUT_S, SDKBatches
from evalflows.specs.errors import CallError

CLOCKS_APART = timedelta(minutes=1)
"""How much a provider's clock may be behind ours."""

STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
"""The HTTP statuses of the errors in results; others are 500."""


class AnthropicBatches(SDKBatches):
    """See `BatchService`."""

    def __init__(
        self,
        sdk: anthropic.AsyncAnthropic,
        headers_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        message: Callable[[Mapping[str, Any]], dict[str, Any]],
        completion: Callable[[Mapping[str, Any]], dict[str, Any]],
        redacted: Callable[[CallError], CallError],
    ) -> None:
        """Args: sdk: does not retry, as a second try could create a second batch; headers_of: returns the headers of a
        request; message: makes the API's request of one in OpenAI's form; completion: makes an answer in OpenAI's form;
        redacted: returns an error without the connection's secrets."""
        super().__init__(redacted)
        self._api, self._headers_of, self._message, self._completion = (
            sdk.messages.batches,
            headers_of,
            message,
            completion,
        )
        self._headers = dict(headers_of({}))

    def line(self, call_id: str, operation: str, request: Mapping[str, Any]) -> bytes:
        entry = {"custom_id": call_id, "params": self._message(request)}
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)

    async def find(self, name: str, since: datetime, rows: int) -> Remote | None:
        """Return a batch that was created since then with as many requests: Anthropic keeps no names. If it is another,
        none of its results is used, as their ids are others."""
        with self._faults():
            async for batch in self._api.list(limit=100, extra_headers=self._headers):  # the newest first
                if batch.created_at < since - CLOCKS_APART:
                    break
                remote = _remote(batch)
                if _total(batch) == rows and not remote.is_over:
                    return remote
        return None

    async def submit(self, name: str, operation: str, requests: Path) -> Remote:
        sent = [orjson.loads(line) for line in requests.read_bytes().splitlines()]
        headers = dict(ChainMap(*(dict(self._headers_of(entry["params"])) for entry in sent)))
        with self._faults():
            return _remote(await self._api.create(requests=sent, extra_headers=headers, timeout=UPLOAD_TIMEOUT_S))

    async def look(self, identity: str) -> Remote:
        with self._faults():
            return _remote(await self._api.retrieve(identity, extra_headers=self._headers))

    async def fetch(self, remote: Remote, into: IO[bytes]) -> None:
        with self._faults():
            async for entry in await self._api.results(remote.identity, extra_headers=self._headers):
                into.write(orjson.dumps(self._result(entry), option=orjson.OPT_APPEND_NEWLINE))

    async def cancel(self, identity: str) -> None:
        with self._faults(), suppress(anthropic.ConflictError, anthropic.BadRequestError):  # it is over
            await self._api.cancel(identity, extra_headers=self._headers)

    async def tidy(self, remote: Remote) -> None:
        with suppress(anthropic.APIError):  # the provider deletes it in time
            await self._api.delete(remote.identity, extra_headers=self._headers)

    def _result(self, entry: MessageBatchIndividualResponse) -> dict[str, Any]:
        """Return a result as a line of results, with the answer in OpenAI's form."""
        result = entry.result
        match result.type:
            case "succeeded":
                body = self._completion(result.message.model_dump(mode="json", warnings=False))
                return {"custom_id": entry.custom_id, "response": {"status_code": 200, "body": body}}
            case "errored":
                said = result.error.error
                body = {"error": {"type": said.type, "message": said.message}}
                return {
                    "custom_id": entry.custom_id,
                    "response": {"status_code": STATUSES.get(said.type, 500), "body": body},
                }
        return {"custom_id": entry.custom_id, "error": {"message": f"the provider has {result.type} it"}}


def _total(batch: MessageBatch) -> int:
    counts = batch.request_counts
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired


def _remote(batch: MessageBatch) -> Remote:
    """Return what a batch says. Raise ValueError if it is none."""
    if not isinstance(batch.id, str) or not isinstance(batch.processing_status, str):
        raise ValueError("no batch")
    counts = batch.request_counts
    return Remote(
        identity=batch.id,
        state=batch.processing_status,
        is_over=batch.processing_status == "ended",
        answered=counts.succeeded,
        failed=counts.errored,
        is_cancelled=batch.cancel_initiated_at is not None,
    )
