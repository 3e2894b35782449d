"""The one path of a call: ledger, budget, limiter, attempts, reading the answer, recording what it took."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llm.attempts import attempted
from llm.budget import Budget
from llm.client import Client, Response
from llm.ledger import Ledger, key_of_text
from llm.limiter import Limiter, outcome_of
from llm.prices import Price, Tokens, price_of
from llm.recorder import Answered, current
from llm.told import Told, told
from specs.connection import ConnectionSpec
from specs.errors import CallError
from store.records import CallRow, new_id, now, to_json

Kind = Literal["chat", "embedding"]
Read = Callable[[Response], dict[str, Any]]
"""From a response to the fields of its row that are its own; raises CallError for one that is of no use."""

PATHS: dict[Kind, str] = {"chat": "/chat/completions", "embedding": "/embeddings"}
BYTES_A_TOKEN = 3
"""For estimates, which are to be too high rather than too low: a Chinese letter is three bytes, and about a token."""
LONG_ANSWER = 500
"""Tokens that an answer is taken to have at the most, before any was seen and where the request has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A connection as this process has it: one client and one limiter, whoever uses them."""

    name: str
    connection: ConnectionSpec
    identity: str  # what stands for it in the ledger
    client: Client
    limiter: Limiter


@dataclass(slots=True)
class _Attempts:
    """What the attempts at one call took, all together: providers charge for answers that are of no use."""

    number: int  # by which the budget knows the call
    estimate: float | None  # USD an attempt, from above
    used: Tokens = field(default_factory=Tokens)
    cost: float | None = 0.0  # None where nobody knows it

    def add(self, used: Tokens, price: Price | None) -> None:
        """One more. Each is priced by itself: a long prompt may cost more a token, and two short ones are none."""
        cost = price.cost(used) if price else None
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.used += used


class Caller:
    """Calls to one endpoint for one experiment; each is paid once."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, budget: Budget) -> None:
        self.endpoint, self._ledger, self._budget = endpoint, ledger, budget

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        """The row of the call that answers a request, and whether it was there already.

        Raises CallError where no attempt was answered, or the budget is spent.
        """
        text = to_json(request)
        key = key_of_text(self.endpoint.identity, text + _order(request), repeat, kind)
        row = await self._ledger.find(key)
        while row is None and key in self._ledger.under_way:
            row = await _shared(self._ledger.under_way[key])
        cached = row is not None
        if row is None:
            row = await self._pay(self._row(kind, key, text, request, repeat), request, read)
        if row.status == "failed":
            raise CallError(row.error_kind, row.error or "", attempts=row.attempts)  # type: ignore[arg-type]
        if recorder := current():
            recorder.answered.append(Answered(row, cached))
        return row, cached

    async def _pay(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        """Make the call, and keep it before its answer is used. Whoever asks the same meanwhile waits for it."""
        future = self._ledger.under_way[row.call_key] = asyncio.get_running_loop().create_future()
        try:
            row = await self._within_budget(row, request, read)
            if recorder := current():
                recorder.keep(row)
                recorder.failed += [row] if row.status == "failed" else []
            self._ledger.add(row)
            future.set_result(row)
            return row
        except Exception as error:  # the budget is spent: for whoever waits too
            future.set_exception(error)
            future.exception()  # seen, also where nobody waits
            raise
        finally:
            del self._ledger.under_way[row.call_key]
            if not future.done():
                future.cancel()

    async def _within_budget(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        tokens = self._estimate(row, request)
        price = price_of(self.endpoint.connection, row.model)
        estimate = price.cost(tokens) if price else None
        number = await self._budget.reserve(estimate)
        taken, made = _Attempts(number, estimate), None
        try:
            made = await self._attempted(row, request, read, (tokens.into or 0) + (tokens.out or 0), taken)
            return made
        finally:
            cost, out = (made.cost_usd, made.tokens_out) if made else (0.0, None)
            self._budget.settle(number, cost, paid=made is not None, tokens_out=out)

    async def _attempted(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, taken: _Attempts
    ) -> CallRow:
        """The row of a call as it ended, answered or not."""
        began = time.perf_counter()
        try:
            fields, attempts = await attempted(
                lambda: self._once(row, request, read, tokens, taken), self.endpoint.connection.attempts
            )
            return replace(row, status="ok", attempts=attempts, recorded_at=now(), **fields, **self._bill(row, taken))
        except CallError as error:
            return replace(
                row,
                error=str(error),
                error_kind=error.kind,
                attempts=error.attempts - (error.kind == "over_budget"),  # the last was not made
                latency_s=time.perf_counter() - began,
                recorded_at=now(),
                **self._bill(row, taken),
            )

    async def _once(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, taken: _Attempts
    ) -> dict[str, Any]:
        if taken.cost:  # what came was of no use, and is paid: the next attempt comes on top
            self._budget.set_aside(taken.number, taken.cost + (taken.estimate or 0.0))
        response, used, latency = await self._posted(row, request, tokens)
        taken.add(used, price_of(self.endpoint.connection, row.model))
        fields = {"latency_s": latency, "provider_request_id": response.headers.get("x-request-id")}
        return fields | read(response)

    async def _posted(self, row: CallRow, request: Mapping[str, Any], tokens: float) -> tuple[Response, Tokens, float]:
        """A response, what it used, and the seconds it took. The place is given back before anything is made of it."""
        limiter = self.endpoint.limiter
        place = await limiter.acquire(tokens)
        began, outcome, said, used = time.perf_counter(), outcome_of(None), None, Tokens()
        try:
            response = await self.endpoint.client.post(PATHS[row.kind], request)
            latency, said, used = time.perf_counter() - began, told(response.headers), tokens_of(response.body)
        except CallError as error:
            outcome, said = outcome_of(error), Told(error.retry_after_s, error.limit_is_empty)
            raise
        finally:
            limiter.release(place, outcome, said, None if used.into is None else used.into + (used.out or 0))
        return response, used, latency

    def _bill(self, row: CallRow, taken: _Attempts) -> dict[str, Any]:
        """What all attempts together used and cost. A provider takes nothing for an error; where it has no price, even
        that is not known."""
        price, used = price_of(self.endpoint.connection, row.model), taken.used
        return {
            "tokens_in": used.into,
            "tokens_cached": used.cached,
            "tokens_out": used.out,
            "cost_usd": taken.cost if price else None,
        }

    def _estimate(self, row: CallRow, request: Mapping[str, Any]) -> Tokens:
        """The tokens of a call, from above."""
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


async def _shared(under_way: asyncio.Future[CallRow]) -> CallRow | None:
    """What a call comes to that another has begun; None where it was broken off, and this one was not."""
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not under_way.cancelled() or (task and task.cancelling()):
            raise
        return None


def _order(request: Mapping[str, Any]) -> str:
    """The order of the fields of a schema, in which a model fills them in: in the text of a request they are sorted."""
    shapes = [request[name] for name in ("response_format", "tools") if name in request]
    return json.dumps(shapes) if shapes else ""


def tokens_of(body: Mapping[str, Any]) -> Tokens:
    """What a response says that it used; what is no count is not known."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return Tokens()
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Tokens(_count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens")))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
