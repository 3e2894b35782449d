"""The one path to a model: ledger, limiter, attempts, reading the answer, recording the call."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
from openai.types.chat import ChatCompletion

from llm.attempts import attempted
from llm.client import Client
from llm.ledger import Ledger, call_key
from llm.limiter import Limiter, outcome_of
from llm.recorder import Recorder, current
from specs.connection import ConnectionSpec
from specs.errors import CallError
from specs.protocols import Completion, Message
from store.records import CallRow, new_id, now, to_json


class Completer:
    """`complete` for one connection and one experiment."""

    def __init__(
        self,
        name: str,
        connection: ConnectionSpec,
        client: Client,
        limiter: Limiter,
        ledger: Ledger,
        identity: str,
        model: str | None,
    ) -> None:
        self._name, self._connection, self._client = name, connection, client
        self._limiter, self._ledger = limiter, ledger
        self._identity, self._model = identity, model or connection.model
        self._under_way: dict[str, asyncio.Future[CallRow]] = {}

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        request = self._request(messages, schema, model, parameters)
        key = call_key(self._identity, request, repeat)
        row = await self._ledger.find(key)
        cached = row is not None
        if row is None and key in self._under_way:
            row, cached = await asyncio.shield(self._under_way[key]), True
        if row is None:
            row = await self._pay(key, request, schema, repeat)
        if row.status == "failed":
            raise CallError(row.error_kind, row.error or "", attempts=row.attempts)  # type: ignore[arg-type]
        completion = _completion(row, schema, cached)
        if recorder := current():
            recorder.completions.append(completion)
        return completion

    async def _pay(self, key: str, request: dict[str, Any], schema: dict[str, Any] | None, repeat: int) -> CallRow:
        """Make the call, and keep it before its answer is used. Whoever asks the same meanwhile waits for it."""
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            row = await self._attempt(key, request, schema, repeat)
            if recorder := current():
                recorder.keep(row)
                recorder.failed += [row.cost_usd] if row.status == "failed" else []
            self._ledger.add(row)
            future.set_result(row)
            return row
        finally:
            del self._under_way[key]
            if not future.done():
                future.cancel()

    async def _attempt(self, key: str, request: dict[str, Any], schema: dict[str, Any] | None, repeat: int) -> CallRow:
        row, began = self._row(key, request, repeat, current()), time.perf_counter()
        try:
            answered, attempts = await attempted(lambda: self._once(row, request, schema), self._connection.attempts)
            return replace(answered, attempts=attempts)
        except CallError as error:
            return replace(
                row,
                status="failed",
                error=str(error),
                error_kind=error.kind,
                attempts=error.attempts,
                # A provider takes nothing for an error; where it has no price, even that is not known.
                cost_usd=self._cost(0, 0),
                latency_s=time.perf_counter() - began,
                recorded_at=now(),
            )

    async def _once(self, row: CallRow, request: dict[str, Any], schema: dict[str, Any] | None) -> CallRow:
        """One attempt: the row of a call that was answered."""
        await self._limiter.acquire()
        began, failure = time.perf_counter(), None
        try:
            answer, request_id = await self._client.chat(request)
        except CallError as error:
            failure = error
            raise
        finally:
            self._limiter.release(outcome_of(failure), failure.retry_after_s if failure else None)
        return replace(self._answered(row, answer, schema, time.perf_counter() - began), provider_request_id=request_id)

    def _request(
        self, messages: str | Sequence[Message], schema: dict[str, Any] | None, model: str | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        model = model or self._model
        if not model:
            raise CallError("bad_request", f"connection {self._name!r}: no model is named, wanted one in the spec")
        content = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        request = {"model": model, "messages": content} | given
        if schema is not None:
            name = str(schema.get("title", "answer"))
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        if self._connection.kind == "local":
            # For answers that repeat: what was asked before must not decide which tokens are computed anew.
            request = {"temperature": 0.0, "cache_prompt": False} | request
        return request

    def _row(self, key: str, request: dict[str, Any], repeat: int, recorder: Recorder | None) -> CallRow:
        return CallRow(
            call_id=new_id("call"),
            call_key=key,
            experiment_id=recorder.experiment_id if recorder else None,
            subject_id=recorder.subject_id if recorder else None,
            evaluator=recorder.evaluator if recorder else None,
            connection=self._name,
            base_url=self._identity,
            model=request["model"],
            request=to_json(request),
            repeat=repeat,
            status="failed",
            reusable=False,
            started_at=now(),
        )

    def _answered(self, row: CallRow, answer: ChatCompletion, schema: dict[str, Any] | None, latency: float) -> CallRow:
        choice, usage = answer.choices[0], answer.usage
        if choice.finish_reason == "content_filter" or choice.message.refusal:
            raise CallError("refused", choice.message.refusal or "stopped by the provider's content filter")
        if schema is not None and not choice.message.tool_calls:
            _read_json(choice.message.content or "", schema, choice.finish_reason)
        tokens_in, tokens_out = (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None)
        details = usage.prompt_tokens_details if usage else None
        return replace(
            row,
            status="ok",
            reusable=choice.finish_reason != "length",
            response=to_json({"message": choice.message.model_dump(exclude_none=True)}, mend=True),
            finish_reason=choice.finish_reason,
            answered_by=answer.model,
            tokens_in=tokens_in,
            tokens_cached=details.cached_tokens if details else None,
            tokens_out=tokens_out,
            cost_usd=self._cost(tokens_in, tokens_out),
            latency_s=latency,
            recorded_at=now(),
        )

    def _cost(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        prices = self._connection.usd_per_million_input_tokens, self._connection.usd_per_million_output_tokens
        if None in (*prices, tokens_in, tokens_out):
            return None
        return (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6  # type: ignore[operator]


def _completion(row: CallRow, schema: dict[str, Any] | None, cached: bool) -> Completion:
    message = json.loads(row.response or "{}").get("message", {})
    text, calls = message.get("content") or "", message.get("tool_calls") or []
    return Completion(
        text=text,
        parsed=json.loads(text) if schema is not None and not calls else None,
        tool_calls=calls,
        finish_reason=row.finish_reason,
        model=row.answered_by or row.model,
        call_id=row.call_id,
        cached=cached,
        attempts=row.attempts,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=0.0 if cached else row.cost_usd,
        latency_s=row.latency_s,
    )


def _read_json(text: str, schema: dict[str, Any], finish_reason: str | None) -> None:
    """Raises CallError for an answer that is not of the schema."""
    try:
        jsonschema.validate(json.loads(text), schema)
    except ValueError as error:
        if finish_reason == "length":
            raise CallError("truncated", "the answer was cut off at the token limit, and is not JSON") from error
        raise CallError("bad_answer", f"wanted JSON: {error}") from error
    except jsonschema.ValidationError as error:
        raise CallError("bad_answer", f"not of the schema: {error.message}") from error
