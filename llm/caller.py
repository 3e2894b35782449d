"""The one path of a call: ledger, budget, limiter, attempts, reading the answer, recording what it took."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llm.attempts import attempted
from llm.budget import Budget
from llm.client import Client, Response
from llm.ledger import Ledger, key_of_text
from llm.limiter import Limiter, outcome_of
from llm.prices import Tokens, price_of
from llm.recorder import Answered, current
from llm.told import Told, told
from specs.connection import ConnectionSpec
from specs.errors import CallError
from store.records import CallRow, new_id, now, to_json

Kind = Literal["chat", "embedding"]
Read = Callable[[Response], dict[str, Any]]
"""From a response to the fields of its row that are its own; raises CallError for one that is of no use."""

PATHS: dict[Kind, str] = {"chat": "/chat/completions", "embedding": "/embeddings"}
CHARACTERS_A_TOKEN = 3
"""For estimates, which are to be too high rather than too low."""
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

    used: Tokens = field(default_factory=Tokens)
    answered: int = 0


class Caller:
    """Calls to one endpoint for one experiment; each is paid once."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, budget: Budget) -> None:
        self.endpoint, self._ledger, self._budget = endpoint, ledger, budget
        self._under_way: dict[str, asyncio.Future[CallRow]] = {}

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        """The row of the call that answers a request, and whether it was there already.

        Raises CallError where no attempt was answered, or the budget is spent.
        """
        text = to_json(request)
        key = key_of_text(self.endpoint.identity, text, repeat, kind)
        row = await self._ledger.find(key)
        cached = row is not None
        if row is None and key in self._under_way:
            row, cached = await asyncio.shield(self._under_way[key]), True
        if row is None:
            row = await self._pay(self._row(kind, key, text, request, repeat), request, read)
        if row.status == "failed":
            raise CallError(row.error_kind, row.error or "", attempts=row.attempts)  # type: ignore[arg-type]
        if recorder := current():
            recorder.answered.append(Answered(row, cached))
        return row, cached

    async def _pay(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        """Make the call, and keep it before its answer is used. Whoever asks the same meanwhile waits for it."""
        future = self._under_way[row.call_key] = asyncio.get_running_loop().create_future()
        try:
            row = await self._within_budget(row, request, read)
            if recorder := current():
                recorder.keep(row)
                recorder.failed += [row] if row.status == "failed" else []
            self._ledger.add(row)
            future.set_result(row)
            return row
        finally:
            del self._under_way[row.call_key]
            if not future.done():
                future.cancel()

    async def _within_budget(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        tokens = self._estimate(row, request)
        price = price_of(self.endpoint.connection, row.model)
        number = await self._budget.reserve(price.cost(tokens) if price else None)
        made = None
        try:
            made = await self._attempted(row, request, read, (tokens.into or 0) + (tokens.out or 0))
            return made
        finally:
            cost, out = (made.cost_usd, made.tokens_out) if made else (0.0, None)
            self._budget.settle(number, cost, paid=made is not None, tokens_out=out)

    async def _attempted(self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float) -> CallRow:
        """The row of a call as it ended, answered or not."""
        taken, began = _Attempts(), time.perf_counter()
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
                attempts=error.attempts,
                latency_s=time.perf_counter() - began,
                recorded_at=now(),
                **self._bill(row, taken),
            )

    async def _once(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, taken: _Attempts
    ) -> dict[str, Any]:
        response, used, latency = await self._posted(row, request, tokens)
        taken.used, taken.answered = taken.used + used, taken.answered + 1
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
        cost = price.cost(used if taken.answered else Tokens(0, 0, 0)) if price else None
        return {"tokens_in": used.into, "tokens_cached": used.cached, "tokens_out": used.out, "cost_usd": cost}

    def _estimate(self, row: CallRow, request: Mapping[str, Any]) -> Tokens:
        """The tokens of a call, from above."""
        out = request.get("max_completion_tokens") or request.get("max_tokens")
        if row.kind == "embedding":
            out = 0
        elif not isinstance(out, int):
            out = max(LONG_ANSWER, 2 * self._budget.most_tokens_out)
        return Tokens(-(-len(row.request) // CHARACTERS_A_TOKEN), None, out)

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
