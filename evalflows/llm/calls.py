"""The path of every model call: ledger, budget, limiter, attempts, reading the answer, recording cost and time."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from evalflows.llm.attempts import retry
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Ledger, key_of_text
from evalflows.llm.limiter import Limiter, outcome_of
from evalflows.llm.prices import Price, Tokens, price_of, token_count
from evalflows.llm.rate_limit_headers import RateLimit, read_rate_limit
from evalflows.llm.recorder import AnsweredCall, current
from evalflows.specs.connection import ConnectionSpec
from evalflows.specs.errors import CallError
from evalflows.store.records import CallRow, new_id, now, to_json

if TYPE_CHECKING:
    from evalflows.llm.client import Client, Response

Kind = Literal["chat", "embedding"]
Read = Callable[["Response"], dict[str, Any]]
"""Returns the row fields read from a response; raises CallError if the response is unusable."""

PATHS: dict[Kind, str] = {"chat": "/chat/completions", "embedding": "/embeddings"}
BYTES_A_TOKEN = 3
"""For estimates, which should rather be too high: a Chinese character is three bytes, about a token."""
LONG_ANSWER = 500
"""Assumed tokens of the longest answer, before any answer was seen and if the request sets no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A connection in this process, with the client and limiter that all its users share."""

    name: str
    connection: ConnectionSpec
    identity: str  # in the ledger
    client: "Client"
    limiter: Limiter


@dataclass(slots=True)
class _Attempts:
    """Tokens and cost of all attempts at one call: providers charge for unusable answers too."""

    reservation: int  # of the budget
    estimate: float | None  # upper bound in USD per attempt
    used: Tokens = field(default_factory=Tokens)
    cost: float | None = 0.0  # None if unknown

    def add(self, used: Tokens, price: Price | None) -> None:
        """Add an attempt. Each is priced separately, since long prompts may cost more per token than short ones."""
        cost = price.cost(used) if price else None
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.used += used


class Caller:
    """Calls one endpoint for one experiment; identical calls are paid once."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, budget: Budget) -> None:
        self.endpoint, self._ledger, self._budget = endpoint, ledger, budget

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        """Return the row of the call that answers a request, and whether it was cached.

        Raises CallError if every attempt failed or the budget is spent.
        """
        text = to_json(request)
        key = key_of_text(self.endpoint.identity, text + _order(request), repeat, kind)
        row = await self._ledger.find(key)
        while row is None and key in self._ledger.in_flight:
            row = await _await_shared(self._ledger.in_flight[key])
        cached = row is not None
        if row is None:
            row = await self._pay(self._row(kind, key, text, request, repeat), request, read)
        if row.status == "failed":
            raise CallError(row.error_kind, row.error or "", attempts=row.attempts)  # type: ignore[arg-type]
        if recorder := current():
            recorder.answered.append(AnsweredCall(row, cached))
        return row, cached

    async def _pay(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        """Make the call and store it before its answer is used. Identical requests meanwhile wait for it."""
        future = self._ledger.in_flight[row.call_key] = asyncio.get_running_loop().create_future()
        try:
            row = await self._within_budget(row, request, read)
            if recorder := current():
                recorder.store(row)
                recorder.failed += [row] if row.status == "failed" else []
            self._ledger.add(row)
            future.set_result(row)
            return row
        except Exception as error:  # the budget is spent, for the waiting requests too
            future.set_exception(error)
            future.exception()  # marks it as retrieved if nobody waits
            raise
        finally:
            del self._ledger.in_flight[row.call_key]
            if not future.done():
                future.cancel()

    async def _within_budget(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        tokens = self._estimate(row, request)
        price = price_of(self.endpoint.connection, row.model)
        estimate = price.cost(tokens) if price else None
        reservation = await self._budget.reserve(estimate)
        attempts, finished = _Attempts(reservation, estimate), None
        try:
            finished = await self._with_retries(row, request, read, (tokens.into or 0) + (tokens.out or 0), attempts)
            return finished
        finally:
            cost, out = (finished.cost_usd, finished.tokens_out) if finished else (0.0, None)
            self._budget.settle(reservation, cost, paid=finished is not None, tokens_out=out)

    async def _with_retries(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, attempts: _Attempts
    ) -> CallRow:
        """Return the finished row, whether the call succeeded or failed."""
        started = time.perf_counter()
        try:
            fields, count = await retry(
                lambda: self._attempt(row, request, read, tokens, attempts), self.endpoint.connection.attempts
            )
            return replace(row, status="ok", attempts=count, recorded_at=now(), **fields, **self._bill(row, attempts))
        except CallError as error:
            return replace(
                row,
                error=str(error),
                error_kind=error.kind,
                attempts=error.attempts - (error.kind == "over_budget"),  # the last attempt was not made
                latency_s=time.perf_counter() - started,
                recorded_at=now(),
                **self._bill(row, attempts),
            )

    async def _attempt(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, attempts: _Attempts
    ) -> dict[str, Any]:
        if attempts.cost:  # earlier unusable answers were paid for: this attempt adds to them
            self._budget.set_aside(attempts.reservation, attempts.cost + (attempts.estimate or 0.0))
        response, used, latency = await self._post(row, request, tokens)
        attempts.add(used, price_of(self.endpoint.connection, row.model))
        fields = {"latency_s": latency, "provider_request_id": response.headers.get("x-request-id")}
        return fields | read(response)

    async def _post(self, row: CallRow, request: Mapping[str, Any], tokens: float) -> "tuple[Response, Tokens, float]":
        """Return the response, its tokens and its latency in seconds. The slot is free before the answer is read."""
        limiter = self.endpoint.limiter
        slot = await limiter.acquire(tokens)
        started, outcome, rate_limit, used = time.perf_counter(), outcome_of(None), None, Tokens()
        try:
            if recorder := current():
                recorder.check_can_keep()
            response = await self.endpoint.client.post(PATHS[row.kind], request)
            latency = time.perf_counter() - started
            rate_limit, used = read_rate_limit(response.headers), tokens_of(response.body)
        except CallError as error:
            outcome, rate_limit = outcome_of(error), RateLimit(error.retry_after_s, error.limit_is_empty)
            raise
        finally:
            limiter.release(slot, outcome, rate_limit, None if used.into is None else used.into + (used.out or 0))
        return response, used, latency

    def _bill(self, row: CallRow, attempts: _Attempts) -> dict[str, Any]:
        """Return tokens and cost of all attempts. Errors cost nothing; without a price the cost is null even then."""
        price, used = price_of(self.endpoint.connection, row.model), attempts.used
        return {
            "tokens_in": used.into,
            "tokens_cached": used.cached,
            "tokens_out": used.out,
            "cost_usd": attempts.cost if price else None,
        }

    def _estimate(self, row: CallRow, request: Mapping[str, Any]) -> Tokens:
        """Return an upper estimate of a call's tokens."""
        out = request.get("max_completion_tokens") or request.get("max_tokens")
        if row.kind == "embedding":
            out = 0
        elif not isinstance(out, int):
            out = max(LONG_ANSWER, 2 * self._budget.most_tokens_out)
        return Tokens(-(-len(row.request.encode()) // BYTES_A_TOKEN), None, out)

    def _row(self, kind: Kind, key: str, text: str, request: Mapping[str, Any], repeat: int) -> CallRow:
        recorder = current()
        return CallRow(
            call_id=new_id("call"),
            call_key=key,
            kind=kind,
            experiment_id=recorder.experiment_id if recorder else None,
            subject_id=recorder.subject_id if recorder else None,
            evaluator=recorder.evaluator if recorder else None,
            connection=self.endpoint.name,
            base_url=self.endpoint.identity,
            model=request["model"],
            request=text,
            repeat=repeat,
            status="failed",
            reusable=False,
            started_at=now(),
        )


async def _await_shared(in_flight: asyncio.Future[CallRow]) -> CallRow | None:
    """Wait for an identical call in flight. Return None if that call was cancelled but this one was not."""
    try:
        return await asyncio.shield(in_flight)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not in_flight.cancelled() or (task and task.cancelling()):
            raise
        return None


def _order(request: Mapping[str, Any]) -> str:
    """Return the schema with its fields in order: a model fills them in that order, but `to_json` sorts them."""
    shapes = [request[name] for name in ("response_format", "tools") if name in request]
    return json.dumps(shapes) if shapes else ""


def tokens_of(body: Mapping[str, Any]) -> Tokens:
    """Return the token counts that a response reports; anything that is not a count is None."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return Tokens()
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Tokens(*map(token_count, (usage.get("prompt_tokens"), cached, usage.get("completion_tokens"))))
