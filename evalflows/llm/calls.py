"""The path of every model call: ledger, budget, limiter, attempts, reading the answer, recording cost and time.

`complete` gives chat completions, `embed` embeddings; each text is paid once.
"""

import asyncio
import base64
import json
import random
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from evalflows.llm import structured_output
from evalflows.llm.budget import LONG_ANSWER, Budget, Tokens, price_of, token_count, tokens_of_text
from evalflows.llm.ledger import AnsweredCall, Ledger, current, key_of_text
from evalflows.llm.rate_limits import Limiter, RateLimit, outcome_of, read_rate_limit
from evalflows.specs.errors import TRANSIENT, CallError, Completion, ErrorKind, Message, print_note
from evalflows.specs.running import ConnectionSpec
from evalflows.store.records import CallRow, new_id, now, to_json

if TYPE_CHECKING:
    from evalflows.llm.client import Client, Response


Result = TypeVar("Result")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 600.0
"""Longest wait that a provider may ask for: a run that has to wait longer is better stopped and resumed."""
SAID_FROM_S = 60.0
"""A wait of so many seconds that an endpoint asks for is said: the run would seem to hang."""

RETRYABLE: frozenset[ErrorKind] = TRANSIENT | {"truncated"}
"""A retry in place may give a shorter answer than a truncated one; if it does not, a later run will not help either."""


async def retry(call: Callable[[], Awaitable[Result]], max_attempts: int, who: str) -> tuple[Result, int]:
    """Return the result of the first successful attempt, and that attempt's number (from 1).

    `who` names the endpoint, for the note about a long wait that it asks for. Raises CallError, with the number of
    attempts made, after the first error that is not retryable or after the last attempt.
    """
    for attempt in range(1, max_attempts + 1):
        try:
            return await call(), attempt
        except CallError as error:
            error.attempts = attempt
            if error.kind not in RETRYABLE or attempt == max_attempts:
                raise
            asked_s = error.retry_after_s
        # Here the error is gone, and with it the frames that hold what was received.
        seconds = pause_s(attempt, asked_s)
        if asked_s is not None and asked_s > SAID_FROM_S:
            _say_wait(who, asked_s, seconds)
        with _noted(seconds):
            await asyncio.sleep(seconds)
    raise AssertionError(f"max_attempts: got {max_attempts}, wanted at least 1")


_said: dict[str, float] = {}  # until when the wait that was said last lasts, by endpoint


def _say_wait(who: str, asked_s: float, seconds: float) -> None:
    """Print that an endpoint asks for a long wait, once for all calls that wait meanwhile."""
    time_now = time.monotonic()
    if _said.get(who, time_now) <= time_now:
        _said[who] = time_now + seconds
        print_note(f"{who} asks to wait {asked_s:.0f} s: its calls are made again in {seconds:.0f} s")


_waiting: dict[int, float] = {}  # until when, by an id of the wait
_ids = count()


@contextmanager
def _noted(seconds: float) -> Iterator[None]:
    """Note during a block that a call waits for its next attempt."""
    number = next(_ids)
    _waiting[number] = time.monotonic() + seconds
    try:
        yield
    finally:
        del _waiting[number]


def calls_waiting() -> tuple[int, float]:
    """Return how many calls of this process wait for their next attempt, and the seconds until the first of them."""
    ends = [*_waiting.copy().values()]
    return len(ends), max(0.0, min(ends) - time.monotonic()) if ends else 0.0


def pause_s(attempt: int, retry_after_s: float | None) -> float:
    """Return the seconds to wait after an attempt (from 1): as the provider asks, else exponential; with jitter."""
    if retry_after_s is not None:
        return min(LONGEST_WAIT_S, retry_after_s + random.uniform(0, 0.1 * retry_after_s))
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)


Kind = Literal["chat", "embedding"]
Read = Callable[["Response"], dict[str, Any]]
"""Returns the row fields read from a response; raises CallError if the response is unusable."""

PATHS: dict[str, str] = {"chat": "/chat/completions", "embedding": "/embeddings"}


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
    estimate: float | None  # upper bound in USD per attempt; None if the price is unknown
    used: Tokens = field(default_factory=Tokens)
    cost: float | None = 0.0  # None if unknown
    spent: float | None = 0.0  # the cost, or estimates of its unknown parts; None if the price is unknown
    tokens_out: int = 0  # of the longest answer, reported or estimated
    was_sent: bool = False

    def add(self, cost: float | None, estimate: float | None) -> None:
        """Add an attempt. Each is priced separately, since long prompts may cost more per token than short ones.

        What is free costs 0, however many tokens it took.
        """
        cost = 0.0 if cost is None and estimate == 0.0 else cost
        self.cost = _sum_of_known(self.cost, cost)
        self.spent = _sum_of_known(self.spent, estimate if cost is None else cost)


def _sum_of_known(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right


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
            if finished:
                cost, estimated = finished.cost_usd, finished.estimated_usd
            else:  # broken off: what was sent may be paid
                cost, estimated = None, _sum_of_known(attempts.spent, estimate)
            was_made = finished is not None or attempts.was_sent
            out = attempts.tokens_out
            self._budget.settle(reservation, cost, estimated_usd=estimated, paid=was_made, tokens_out=out)

    async def _with_retries(
        self, row: CallRow, request: Mapping[str, Any], read: Read, tokens: float, attempts: _Attempts
    ) -> CallRow:
        """Return the finished row, whether the call succeeded or failed."""
        started = time.perf_counter()
        try:
            fields, count = await retry(
                lambda: self._attempt(row, request, read, tokens, attempts),
                self.endpoint.connection.attempts,
                f"connection {self.endpoint.name!r} ({self.endpoint.identity})",
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
        if attempts.spent:  # earlier unusable answers were paid for: this attempt adds to them
            self._budget.set_aside(attempts.reservation, attempts.spent + (attempts.estimate or 0.0))
        try:
            response, used, latency = await self._post(row, request, tokens, attempts)
        except CallError as error:
            if error.cost_is_unknown:
                attempts.add(None, attempts.estimate)
            raise
        self._charge(row, response, used, attempts)
        fields = {"latency_s": latency, "provider_request_id": response.headers.get("x-request-id")}
        return fields | read(response)

    def _charge(self, row: CallRow, response: "Response", used: Tokens, attempts: _Attempts) -> None:
        """Add what an answer cost; if the endpoint does not report its tokens, an estimate from the texts."""
        price, of_texts = price_of(self.endpoint.connection, row.model), used
        if row.kind == "chat" and not used.are_reported:
            answer = to_json(response.body.get("choices"), mend=True)
            of_texts = Tokens(tokens_of_text(row.request), None, tokens_of_text(answer))
        elif used.into is None:
            of_texts = Tokens(tokens_of_text(row.request))
        attempts.used += used
        attempts.tokens_out = max(attempts.tokens_out, of_texts.out or 0)
        cost = price.cost(of_texts) if price else None
        attempts.add(cost if of_texts is used else None, cost)

    async def _post(
        self, row: CallRow, request: Mapping[str, Any], tokens: float, attempts: _Attempts
    ) -> "tuple[Response, Tokens, float]":
        """Return the response, its tokens and its latency in seconds. The slot is free before the answer is read."""
        limiter = self.endpoint.limiter
        slot = await limiter.acquire(tokens)
        started, outcome, rate_limit, used = time.perf_counter(), outcome_of(None), None, Tokens()
        try:
            if recorder := current():
                free = 0.0 if attempts.estimate == 0.0 else None
                recorder.begin(replace(row, cost_usd=free, estimated_usd=attempts.estimate))
            attempts.was_sent = True
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
        """Return tokens and cost of all attempts. HTTP errors cost nothing; without a price that is null even then."""
        used, is_priced = attempts.used, attempts.estimate is not None
        return {
            "tokens_in": used.into,
            "tokens_cached": used.cached,
            "tokens_out": used.out,
            "cost_usd": attempts.cost if is_priced else None,
            "estimated_usd": attempts.spent if is_priced and attempts.cost is None else None,
        }

    def _estimate(self, row: CallRow, request: Mapping[str, Any]) -> Tokens:
        """Return an upper estimate of a call's tokens."""
        out = request.get("max_completion_tokens") or request.get("max_tokens")
        if row.kind == "embedding":
            out = 0
        elif not isinstance(out, int):
            out = max(LONG_ANSWER, 2 * self._budget.most_tokens_out)
        return Tokens(tokens_of_text(row.request), None, out)

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


MAX_TOKENS = ("max_tokens", "max_completion_tokens")
"""The parameters of a request that limit the length of its answer."""


class Completer:
    """`complete` for one connection and one experiment."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

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

        def read(response: "Response") -> dict[str, Any]:
            fields = completion_fields(response.body)
            limited = schema is None and any(request.get(name) is not None for name in MAX_TOKENS)
            fields["reusable"] = limited or fields["finish_reason"] != "length"  # else another try may be complete
            self._parsed(json.loads(fields["response"])["message"], schema, fields["finish_reason"])
            return fields

        row, cached = await self._caller.call("chat", request, read, repeat)
        message = json.loads(row.response or "{}").get("message", {})
        return _completion(row, message, self._parsed(message, schema, row.finish_reason), cached)

    def _parsed(self, message: Mapping[str, Any], schema: dict[str, Any] | None, finish_reason: str | None) -> Any:
        """Return the answer as JSON; None without a schema, or if the model called one of the request's own tools."""
        form = self.endpoint.connection.answer_form
        if schema is None or (form == "json_schema" and message.get("tool_calls")):
            return None
        return structured_output.read_answer(message, schema, form, finish_reason)

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


def completion_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row fields of a chat completion. Raises CallError for an unusable answer or a refusal."""
    choice = _first(body.get("choices"))
    message, finish = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, Mapping):
        raise CallError("bad_answer", "the answer's first choice has no message")
    message = {name: value for name, value in message.items() if value is not None}
    if finish == "content_filter" or message.get("refusal"):
        refusal = " ".join(str(message.get("refusal") or "").split())
        raise CallError("refused", refusal or "stopped by the provider's content filter")
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | None) or not isinstance(calls, list | None):
        got = type(calls if isinstance(content, str | None) else content).__name__
        raise CallError("bad_answer", f"the answer's content or tool calls: got {got}, wanted text and a list")
    return {
        "response": to_json({"message": message}, mend=True),
        "finish_reason": finish if isinstance(finish, str) else None,
        "answered_by": body["model"] if isinstance(body.get("model"), str) else None,
    }


def _first(choices: object) -> Mapping[str, Any]:
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise CallError("bad_answer", "the answer has no choices")
    return choices[0]


def _completion(row: CallRow, message: Mapping[str, Any], parsed: Any, cached: bool) -> Completion:
    return Completion(
        text=message.get("content") or "",
        parsed=parsed,
        tool_calls=message.get("tool_calls") or [],
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


LARGEST = 3.4028234663852886e38
"""The largest 32-bit float."""


class Embedder:
    """`embed` for one connection and one experiment. It makes one call per text, so that each text is cached."""

    def __init__(self, caller: Caller, model: str | None) -> None:
        self.endpoint, self._caller, self._model = caller.endpoint, caller, model

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
    if not isinstance(vector, list) or not vector or not all(_is_number(part) for part in vector):
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
    """Whether it is a number that fits a 32-bit float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
