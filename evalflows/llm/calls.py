"""The path of every model call: ledger, budget, limiter, attempts, reading the answer, recording cost and time.

`complete` gives chat completions, `embed` embeddings; each text is paid once. A call that a batch answers goes the same
way in two passes: the first collects it, the second reads its answer.
"""

import asyncio
import base64
import json
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from evalflows.llm import structured_output
from evalflows.llm.answers import completion_fields, end_of, finish_of, has_thinking, is_empty
from evalflows.llm.attempts import RETRYABLE, Attempts
from evalflows.llm.batches import Answer, Batches, Deferred, Earlier, Held, limits_of
from evalflows.llm.budget import Budget
from evalflows.llm.endpoint_errors import as_kept_json, spec_hint
from evalflows.llm.ledger import AnsweredCall, Ledger, current, key_of_text, sum_unless_unknown
from evalflows.llm.limiter import Limiter, Turn
from evalflows.llm.prefixes import Prefixes
from evalflows.llm.prices import (
    LONG_ANSWER,
    Price,
    Tokens,
    price_in_batches,
    price_of,
    tokens_of,
    tokens_of_request,
    tokens_of_text,
)
from evalflows.llm.rate_limits import RateLimit, read_rate_limit
from evalflows.llm.repairs import Repairs
from evalflows.specs.attachments import has_reference, opened_parts, without_contents
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.errors import NOT_ATTEMPTED, REFUSED_BY_BUDGET, UNREACHABLE, CallError, InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Completion, Message
from evalflows.store.records import CallRow, new_id, now, to_json

if TYPE_CHECKING:
    from evalflows.llm.client import Client, Response

Kind = Literal["chat", "embedding"]
Read = Callable[["Response"], dict[str, Any]]
"""Returns the row fields read from a response; raises CallError if the response is unusable."""

PATHS: dict[str, str] = {"chat": "/chat/completions", "embedding": "/embeddings"}

MAX_TOKENS = ("max_tokens", "max_completion_tokens")
"""The parameters of a request that limit the length of its answer."""

TOGETHER_S = 0.005
"""Seconds in which an item makes the calls that it makes at the same time."""

LARGEST = 3.4028234663852886e38
"""The largest 32-bit float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A connection in this process, with the client and limiter that all its users share."""

    name: str
    connection: ConnectionSpec
    identity: str  # in the ledger
    client: "Client"
    limiter: Limiter
    repairs: Repairs = field(default_factory=lambda: Repairs("the endpoint"))
    prefixes: Prefixes = field(default_factory=Prefixes)


@dataclass(slots=True)
class _Bill:
    """Tokens and cost of all attempts at one call: providers charge for unusable answers too."""

    price: Price | None
    estimate: float | None  # upper bound in USD per attempt; None if the price is unknown
    reservation: int | None = None
    used: Tokens = field(default_factory=Tokens)
    cost: float | None = 0.0  # None if unknown
    spent: float | None = 0.0  # the cost, or estimates of its unknown parts; None if the price is unknown
    tokens_out: int = 0  # of the longest answer, reported or estimated
    was_sent: bool = False
    is_complete: bool = False  # whether the call was not broken off

    def add(self, cost: float | None, estimate: float | None) -> None:
        """Add an attempt. Each is priced separately, since long prompts may cost more per token than short ones.

        What is free costs 0, however many tokens it took.
        """
        cost = 0.0 if cost is None and estimate == 0.0 else cost
        self.cost = sum_unless_unknown(self.cost, cost)
        self.spent = sum_unless_unknown(self.spent, estimate if cost is None else cost)

    def add_answer(self, row: CallRow, response: "Response", used: Tokens) -> None:
        """Add what an answer cost; if the endpoint does not report its tokens, an estimate from the texts."""
        of_texts = used
        if row.kind == "chat" and not used.are_reported:
            answer = to_json(response.body.get("choices"), mend=True)
            of_texts = Tokens(tokens_of_request(row.request), None, tokens_of_text(answer))
        elif used.into is None:
            of_texts = Tokens(tokens_of_text(row.request))
        self.used += used
        self.tokens_out = max(self.tokens_out, of_texts.out or 0)
        cost = self.price.cost(of_texts) if self.price else None
        self.add(cost if of_texts is used else None, cost)

    def close(self) -> dict[str, Any]:
        """Return tokens and cost of all attempts, after the last.

        HTTP errors cost nothing; without a price that is null even then.
        """
        self.is_complete, is_priced = True, self.estimate is not None
        return {
            "tokens_in": self.used.into,
            "tokens_cached": self.used.cached,
            "tokens_out": self.used.out,
            "tokens_reasoning": self.used.reasoning,
            "cost_usd": self.cost if is_priced else None,
            "estimated_usd": self.spent if is_priced and self.cost is None else None,
        }

    def settle(self, budget: Budget) -> None:
        """Replace what the budget has set aside. Of a call that was broken off, what was sent may be paid."""
        is_known = self.is_complete and self.estimate is not None
        cost = self.cost if is_known else None
        spent = self.spent if self.is_complete else sum_unless_unknown(self.spent, self.estimate)
        estimated = spent if self.estimate is not None and cost is None else None
        if self.reservation is None:  # it was given up, and the new estimate did not fit
            return
        budget.settle(self.reservation, cost, estimated_usd=estimated, paid=self.was_sent, tokens_out=self.tokens_out)


class Caller:
    """Calls one endpoint for one experiment; identical calls are paid once."""

    def __init__(
        self, endpoint: Endpoint, ledger: Ledger, budget: Budget, batches: Callable[[], Batches] | None = None
    ) -> None:
        """Args: batches: of the run, if its calls are answered by batches."""
        self.endpoint, self._ledger, self._budget, self._batches = endpoint, ledger, budget, batches

    def directly(self) -> "Caller":
        """Return a caller that makes all calls at once."""
        return Caller(self.endpoint, self._ledger, self._budget)

    def at(self, endpoint: Endpoint) -> "Caller":
        """Return one for another endpoint."""
        return Caller(endpoint, self._ledger, self._budget)

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        """Return the row of the call that answers a request, and whether it was cached.

        A call is recorded before its answer is used; identical requests meanwhile wait for it. Raise CallError if
        every attempt failed or the budget is spent; raise Deferred if a batch will answer it.
        """
        ledger, recorder, text = self._ledger, current(), without_contents(to_json(request))
        key = key_of_text(self.endpoint.identity, text + _order(request), repeat, kind)
        row = await ledger.find(key)
        while row is None and key in ledger.in_flight:
            row = await _await_shared(ledger.in_flight[key])
        cached = row is not None
        if row is None:
            with ledger.making(key) as made:
                row = await self._answered(self._row(kind, key, text, request, repeat), request, read)
                if recorder and row.batch_id is not None and row.error_kind in NOT_ATTEMPTED:  # no batch has made it
                    recorder.keep(row)
                    recorder.failed.append(row)
                elif recorder:
                    recorder.store(row)
                    recorder.failed += [row] if row.status == "failed" else []
                if self._batches is not None:
                    self._batches().read(key)  # only now that its row is on disk
                ledger.add(row)
                made.set_result(row)
        if row.status == "failed":
            raise CallError(row.error_kind, row.error or "", attempts=row.attempts)  # type: ignore[arg-type]
        if recorder:
            recorder.answered.append(AnsweredCall(row, cached))
        return row, cached

    async def _answered(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        """Return the row of a call that is made now, or that a batch has answered."""
        if self._batches is None:
            return await self._make(row, request, read)
        batches = self._batches()
        if (unsent := batches.take_unsent(row.call_key)) is not None:
            self._budget.correct(unsent.estimate, 0.0, None, calls=-1)
            return await self._make(row, request, read)
        held = batches.held(row.call_key)
        if held is None:
            await self._collect(batches, row, request, Earlier(), None)
        assert held is not None
        answer = batches.answer(held, self.endpoint, row.experiment_id)
        if answer is None:
            await self._put_off(batches)
        assert answer is not None
        attempts, batch_id = held.earlier.attempts + 1, held.batch.provider_id
        row = replace(row, call_id=held.call_id, batch_id=batch_id, attempts=attempts)
        return await self._read(batches, held, row, request, answer, read)

    async def _read(
        self,
        batches: Batches,
        held: Held,
        row: CallRow,
        request: Mapping[str, Any],
        answer: Answer | CallError,
        read: Read,
    ) -> CallRow:
        """Return the row of a call that a batch has answered. If the answer is of no use, collect the call again; after
        as many batches as the connection allows, make it directly or return the failed row."""
        from evalflows.llm.client import Response  # late: it loads the SDK

        limits, earlier = limits_of(self.endpoint.connection), held.earlier
        bill = _Bill(self._price(row.model), held.estimate, used=earlier.used, cost=earlier.cost, spent=earlier.spent)
        bill.was_sent, attempts, fields = True, row.attempts, dict[str, Any]()
        try:
            if isinstance(answer, CallError):
                raise answer
            response = Response(answer.body, {})
            bill.add_answer(row, response, tokens_of(answer.body))
            fields = {"status": "ok", "provider_request_id": answer.request_id} | read(response)
        except CallError as error:
            may_retry = error.kind in RETRYABLE or error.kind == "expired"
            if may_retry and attempts < limits.attempts:
                again = Earlier(attempts=attempts, used=bill.used, cost=bill.cost, spent=bill.spent)
                await self._collect(batches, replace(row, batch_id=None), request, again, held.estimate)
            if error.kind == "expired" and limits.then == "direct":
                self._budget.correct(held.estimate, 0.0, None, calls=-1)
                return await self._make(replace(row, batch_id=None), request, read)
            error.attempts = attempts
            if error.kind in UNREACHABLE | NOT_ATTEMPTED:
                batches.give_up(row.call_key, error)
            received = error.received
            if received is None and not isinstance(answer, CallError):
                received, error.finish_reason = as_kept_json(json.dumps(answer.body)), finish_of(answer.body)
            fields = {
                "error": str(error),
                "error_kind": error.kind,
                "response": received,
                "finish_reason": error.finish_reason,
            }
        made = replace(row, recorded_at=now(), **fields, **bill.close())
        self._budget.correct(held.estimate, made.cost_usd, made.estimated_usd)
        return made

    async def _collect(
        self, batches: Batches, row: CallRow, request: Mapping[str, Any], earlier: Earlier, before_usd: float | None
    ) -> NoReturn:
        """Collect a call for the next batch, with what it may cost set aside as spent; then raise Deferred.

        If the budget has no room for it, it is put off as long as other calls may turn out to cost less than estimated.
        Raise CallError if they cannot. `before_usd` is what was set aside for an earlier attempt.
        """
        price = self._price(row.model)
        attempt = price.cost(self._estimate(row, request)) if price else None
        estimate = sum_unless_unknown(earlier.spent, attempt)
        if earlier.attempts:
            self._budget.correct(before_usd, None, estimate)
        else:
            try:
                reservation = await self._budget.reserve(estimate)
            except CallError:
                if batches.may_free_budget:
                    await self._put_off(batches)
                raise
            self._budget.settle(reservation, None, estimated_usd=estimate)
        opened = await self._opened(row, self.endpoint.repairs.repaired(request))
        batches.collect(self.endpoint, PATHS[row.kind], row, opened, estimate=estimate, earlier=earlier)
        await self._put_off(batches)

    async def _put_off(self, batches: Batches) -> NoReturn:
        """Raise Deferred, once the calls that the item makes at the same time have been collected too."""
        batches.deferred += 1
        if (recorder := current()) is not None:
            recorder.is_deferred = True
        await asyncio.sleep(TOGETHER_S)
        raise Deferred

    def _price(self, model: str) -> Price | None:
        """Return the price of a call: that of a batch, if batches answer."""
        connection = self.endpoint.connection
        price = price_of(connection, model)
        return price if price is None or self._batches is None else price_in_batches(connection, price)

    async def _make(self, row: CallRow, request: Mapping[str, Any], read: Read) -> CallRow:
        """Make a call within the budget, until an attempt succeeds or none can cure it.

        Return its row, answered or failed, with what all attempts cost. Raise CallError if the budget is spent.
        """
        endpoint, budget, began = self.endpoint, self._budget, time.perf_counter()
        connection = endpoint.connection
        price, tokens = price_of(connection, row.model), self._estimate(row, request)
        bill = _Bill(price, price.cost(tokens) if price else None)
        who = f"connection {endpoint.name!r} ({endpoint.identity})"
        attempts = Attempts(connection.attempts, who, connection.max_wait_s)
        bill.reservation = await budget.reserve(bill.estimate)
        try:
            while True:
                async with attempts:
                    if bill.spent:  # earlier unusable answers were paid for: this attempt adds to them
                        budget.set_aside(bill.reservation, bill.spent + (bill.estimate or 0.0))
                    fields = await self._attempt(row, request, read, tokens.total or 0, bill)
                    return replace(row, attempts=attempts.made, recorded_at=now(), **fields, **bill.close())
        except CallError as error:
            return replace(
                row,
                error=str(error),
                error_kind=error.kind,
                response=error.received,
                finish_reason=error.finish_reason,
                attempts=error.attempts - (error.kind in REFUSED_BY_BUDGET),  # the last attempt was not made
                latency_s=time.perf_counter() - began,
                recorded_at=now(),
                **bill.close(),
            )
        finally:
            bill.settle(budget)

    async def _attempt(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, bill: _Bill
    ) -> dict[str, Any]:
        """Return the fields of a good answer. The slot is free before the answer is read."""
        while True:
            async with self._prefix(request), self.endpoint.limiter.turn(tokens) as turn:
                outgrown = self._outgrown(row, request, bill)
                if outgrown is None:
                    response, latency, used, sent = await self._send(row, request, bill, turn)
                    break
                turn.note(RateLimit(), 0)
            given_up, bill.reservation, bill.estimate = bill.reservation, None, outgrown
            assert given_up is not None
            bill.reservation = await self._budget.reserve_again(given_up, outgrown)  # it may wait, so without a slot
        bill.add_answer(row, response, used)
        request_id = response.headers.get("x-request-id")
        try:
            return {"status": "ok", "latency_s": latency, "provider_request_id": request_id} | sent | read(response)
        except CallError as error:
            error.received, error.finish_reason = as_kept_json(json.dumps(response.body)), finish_of(response.body)
            raise

    def _prefix(self, request: Mapping[str, Any]) -> AbstractAsyncContextManager[None]:
        has_cache = self.endpoint.connection.kind != "local"
        return self.endpoint.prefixes.turn(request) if has_cache else nullcontext()

    async def _send(
        self, row: CallRow, request: Mapping[str, Any], bill: _Bill, turn: Turn
    ) -> "tuple[Response, float, Tokens, dict[str, Any]]":
        """Return the response, its latency in seconds, the tokens that it reports, and the row's request if the model
        was asked otherwise than the spec says, since it refused that."""
        endpoint, recorder, repairs = self.endpoint, current(), self.endpoint.repairs
        while True:
            as_taken = repairs.repaired(request)
            opened = await self._opened(row, as_taken)
            sent = time.perf_counter()
            if recorder:
                free = 0.0 if bill.estimate == 0.0 else None
                recorder.begin(replace(row, cost_usd=free, estimated_usd=bill.estimate))
            bill.was_sent = True
            try:
                response = await endpoint.client.post(PATHS[row.kind], opened)
                break
            except CallError as error:
                if error.cost_is_unknown:
                    bill.add(None, bill.estimate)
                if error.kind == "bad_request" and repairs.learn(as_taken, str(error)):
                    continue
                if error.kind == "bad_request" and (hint := spec_hint(as_taken, str(error))):
                    error.args = (f"{str(error).rstrip('.')}; wanted {hint}",)
                raise
        latency, used = time.perf_counter() - sent - response.opening_s, tokens_of(response.body)
        turn.note(read_rate_limit(response.headers), used.total)
        own = {} if as_taken is request else {"request": without_contents(to_json(as_taken))}
        return response, latency, used, own

    async def _opened(self, row: CallRow, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request with contents in place of references. Raise CallError if the store lacks one."""
        if not has_reference(row.request):
            return request
        try:
            opened: Mapping[str, Any] = await asyncio.to_thread(opened_parts, request, self._ledger.content_of)
        except InputError as error:
            raise CallError("bad_request", str(error)) from error
        return opened

    def _outgrown(self, row: CallRow, request: Mapping[str, Any], bill: _Bill) -> float | None:
        """Return the new estimate of a call that was not sent yet, if answers since were longer than thought."""
        if bill.was_sent or bill.price is None or bill.estimate is None or not self._budget.limits_money:
            return None
        estimate = bill.price.cost(self._estimate(row, request))
        return estimate if estimate is not None and estimate > bill.estimate else None

    def _estimate(self, row: CallRow, request: Mapping[str, Any]) -> Tokens:
        """Return an upper estimate of a call's tokens."""
        out = request.get("max_completion_tokens") or request.get("max_tokens")
        if row.kind == "embedding":
            out = 0
        elif not isinstance(out, int):
            out = max(LONG_ANSWER, 2 * self._budget.most_tokens_out)
        return Tokens(tokens_of_request(row.request), None, out)

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


class Completer:
    """`complete` for one connection and one experiment."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

    @property
    def model(self) -> str | None:
        """The model that it asks unless a call names another."""
        return self._model

    def directly(self) -> "Completer":
        """Return one that waits for no batch."""
        return Completer(self._caller.directly(), self._model)

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
        form = self.endpoint.connection.answer_form

        def parsed(message: Mapping[str, Any], finish_reason: str | None) -> Any:
            """Return the answer as JSON; None without a schema, or for calls of the request's own tools."""
            if schema is None or (parameters.get("tools") and message.get("tool_calls")):
                return None
            return structured_output.read_answer(message, schema, form, finish_reason, request["messages"])

        def read(response: "Response") -> dict[str, Any]:
            fields = completion_fields(response.body)
            limited = schema is None and any(request.get(name) is not None for name in MAX_TOKENS)
            is_truncated = end_of(fields["finish_reason"]) == "truncated"
            message = json.loads(fields["response"])["message"]
            fields["reusable"] = (limited or not is_truncated) and not is_empty(message)  # another try may be complete
            parsed(message, fields["finish_reason"])
            return fields

        row, cached = await self._caller.call("chat", request, read, repeat)
        message = json.loads(row.response or "{}").get("message", {})
        return Completion(
            text=message.get("content") or "",
            parsed=parsed(message, row.finish_reason),
            tool_calls=message.get("tool_calls") or [],
            has_thinking=has_thinking(message),
            finish_reason=row.finish_reason,
            is_truncated=end_of(row.finish_reason) == "truncated",
            model=row.answered_by or row.model,
            call_id=row.call_id,
            cached=cached,
            attempts=row.attempts,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            cost_usd=0.0 if cached else row.cost_usd,
            latency_s=row.latency_s,
        )

    async def refusal_of(self, question: str, schema: dict[str, Any] | None, parameters: dict[str, Any]) -> str | None:
        """Ask once, whatever is answered, and return what the provider says if it refuses a parameter, else None."""
        once = self.endpoint.connection.model_copy(update={"attempts": 1})
        caller = self._caller.at(replace(self.endpoint, connection=once))
        request = dict[str, Any]()
        try:
            request = self._request(question, schema, None, parameters)
            await caller.call("chat", request, lambda response: {"reusable": True, "response": to_json(response.body)})
        except CallError as error:
            # a protocol that cannot send a value says so as `name: got …, wanted …`
            named = str(error).partition(": got ")[0] in request or spec_hint(request, str(error)) is not None
            return " ".join(str(error).split()) if named and error.kind == "bad_request" else None
        return None

    def _request(
        self,
        messages: str | Sequence[Message],
        schema: dict[str, Any] | None,
        model: str | None,
        parameters: dict[str, Any],
    ) -> dict[str, Any]:
        model = model or self._model
        if not model:
            name = self.endpoint.name
            raise CallError("bad_request", f"connection {name!r}: no model, wanted one in the spec")
        content = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        request = {"model": model, "messages": content} | parameters
        connection = self.endpoint.connection
        if schema is not None:
            request = structured_output.with_response_format(request, schema, connection.answer_form)
        if connection.kind == "local":
            # For reproducible answers: earlier requests must not decide which tokens are recomputed.
            request = {"temperature": 0.0, "cache_prompt": False} | request
        return request


class Embedder:
    """`embed` for one connection and one experiment. It makes one call per text, so that each text is cached."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

    def directly(self) -> "Embedder":
        """Return one that waits for no batch."""
        return Embedder(self._caller.directly(), self._model)

    async def __call__(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        model = model or self._model
        if not model:
            name = self.endpoint.name
            raise CallError("bad_request", f"connection {name!r}: no embedding_model, wanted one in the spec")
        # Raise only when all calls have ended, so that every paid one is recorded for this item.
        results = await asyncio.gather(*(self._embed(text, model) for text in texts), return_exceptions=True)
        return [_vector(result) for result in results]

    async def _embed(self, text: str, model: str) -> list[float]:
        row, _ = await self._caller.call("embedding", {"model": model, "input": text}, _read)
        return list(array("f", base64.b64decode(json.loads(row.response or "{}")["vector"])))


def _read(response: "Response") -> dict[str, Any]:
    """Return the row fields, with the vector as 32-bit floats in base64: a quarter of its size as text."""
    data = response.body.get("data")
    vector = data[0].get("embedding") if isinstance(data, list) and data and isinstance(data[0], dict) else None
    if not isinstance(vector, list) or not vector or not all(_is_number(number) for number in vector):
        raise CallError("bad_answer", "the answer has no vector of numbers")
    packed = base64.b64encode(array("f", vector).tobytes()).decode()
    model = response.body.get("model")
    return {
        "reusable": True,
        "response": to_json({"vector": packed}),
        "answered_by": model if isinstance(model, str) else None,
    }


def _vector(result: list[float] | BaseException) -> list[float]:
    if isinstance(result, BaseException):
        raise result
    return result


def _is_number(value: object) -> bool:
    """Return whether it is a number that fits a 32-bit float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
