"""Record what the user's own code does during a run: calls of its own OpenAI client, and named steps."""

import asyncio
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import asdict, is_dataclass, replace
from functools import cache, reduce, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, classify, remember_key, without_keys
from evalflows.llm.ledger import AnsweredCall, Recorder, call_key, current, note_lost_call
from evalflows.llm.prices import (
    LONG_ANSWER,
    Price,
    Tokens,
    price_at,
    token_count,
    tokens_of,
    tokens_of_request,
    tokens_of_text,
)
from evalflows.specs.attachments import without_contents
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.frozen import dataclass
from evalflows.store.records import CallRow, Json, from_json, mended, new_id, now, to_json

if TYPE_CHECKING:  # it takes a second to load, and most that has steps calls no such client
    import openai
    from openai.types.chat import ChatCompletion

SomeClient = TypeVar("SomeClient", "openai.OpenAI", "openai.AsyncOpenAI")
Method = Callable[..., Any]

METHODS = (
    *("chat.completions.create", "chat.completions.parse", "beta.chat.completions.parse"),
    *("responses.create", "responses.parse", "embeddings.create"),
)
CONNECTION = "wrapped"
"""The connection name in the ledger for the user's own clients."""

_REUSED = "chat.completions.create"
"""The method whose answers are made again from the ledger."""

_MARK = "__records_calls__"
_TRANSPORT_OPTIONS = {"extra_headers", "extra_query", "extra_body", "timeout"}  # headers may contain a key
_MAX_DEPTH = 20

_step: ContextVar[tuple[str, object] | None] = ContextVar("evalflows_step", default=None)
"""The id of the innermost step of the user's code, and what describes it or the innermost one around it."""


Prices = Mapping[str, tuple[float, float]]
"""USD per million input and output tokens, by model."""


def wrap(client: SomeClient, *, name: str | None = None, prices: Prices | None = None) -> SomeClient:
    """Record each call that an OpenAI client makes during a run, in the run's steps, its totals and the ledger.

    So do clients made of it by `with_options` and `copy`. What it posts in other ways, such as by `post` itself, is
    recorded too, with tokens and cost as far as they are known. Return the client itself. Calls outside a run are
    unchanged. `name` is the name of the steps; the method's name by default. A call's price is that of its model in
    `prices`, else that of a connection with the same address, and the same model or none, else that of the price list.
    Raise InputError for any other kind of client, and for prices that are no pairs of numbers.
    """
    import openai

    of_models = {model: _price(model, given) for model, given in (prices or {}).items()}
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise InputError(f"wrap: got {type(client).__name__}, wanted openai.OpenAI or openai.AsyncOpenAI")
    if hasattr(client.post, _MARK):  # wrapping twice has no further effect
        return client
    _carry_recordings()
    recorded = _awaited if isinstance(client, openai.AsyncOpenAI) else _called
    # `post` last: resources keep the one that they find when they are made, so those above record a call only once.
    for path in (*METHODS, "post"):
        *owners, method = path.split(".")
        resource = reduce(getattr, owners, client)
        wrapped = _Wrapped(client, name or path, path == _REUSED, of_models)
        setattr(resource, method, recorded(getattr(resource, method), wrapped))
    setattr(client.post, _MARK, True)
    copy = client.copy

    @wraps(copy)
    def copied(*args: Any, **kwargs: Any) -> Any:
        return wrap(copy(*args, **kwargs), name=name, prices=prices)

    for method in ("copy", "with_options"):
        setattr(client, method, copied)
    return client


@contextmanager
def step(kind: str, name: str, inputs: Any, described_by: object = None) -> Iterator[dict[str, Any]]:
    """Record the block as a step of the current run; outside a run nothing is recorded.

    The block may fill the yielded note: `outputs`, and anything else to keep. A step inside another step names it as
    its parent. `described_by` is what `description` returns in the block.
    """
    note, started = begin_step(kind, name, inputs, current_step()), time.perf_counter()
    token = _step.set((note["id"], described_by or description()))
    try:
        yield note
    except BaseException as error:
        note["error"] = mended(describe(error))
        raise
    finally:
        _step.reset(token)
        note |= {key: plain(value) for key, value in note.items()} | {"latency_s": time.perf_counter() - started}


def begin_step(kind: str, name: str, inputs: Any, parent: str | None) -> dict[str, Any]:
    """Record a step of the current run that has just begun. Return its note, which the caller completes.

    For steps that no block of code encloses; `parent` is the id of another step. Its values must be JSON in the end.
    """
    note: dict[str, Any] = {"id": secrets.token_hex(8), "parent": parent, "kind": kind, "name": name}
    note |= {"inputs": plain(inputs), "outputs": None, "error": None}
    note |= {"started_at": now().isoformat(), "latency_s": None}
    if recorder := current():
        recorder.steps.append(note)
    return note


def current_step() -> str | None:
    """Return the id of the innermost step, or None."""
    return found[0] if (found := _step.get()) else None


def description() -> Any:
    """Return what describes the innermost step that anything describes, or None."""
    return found[1] if (found := _step.get()) else None


def plain(value: Any, depth: int = 0) -> Any:
    """Convert any value to JSON types. Never raises: a note must not break the code that it describes."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    try:
        if depth == _MAX_DEPTH:
            return repr(value)
        if isinstance(value, Mapping):
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(item, depth + 1) for item in value]
        return plain(_fields(value), depth + 1)
    except Exception:  # the repr or a property of the user's object may raise
        return f"<{type(value).__name__}>"


def _fields(value: Any) -> Any:
    """Return the fields of an object, or its text if it has none that are known."""
    if isinstance(value, type):
        return value.model_json_schema() if hasattr(value, "model_json_schema") else value.__qualname__
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True, warnings=False)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else repr(value)


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A method of a wrapped client."""

    client: "openai.OpenAI | openai.AsyncOpenAI"
    name: str  # of its steps
    can_reuse: bool
    prices: Mapping[str, Price]

    def price(self, recorder: Recorder, model: str, base_url: str) -> Price | None:
        return self.prices.get(model) or price_at(base_url, model, recorder.connections)


def _price(model: str, given: object) -> Price:
    if isinstance(given, Sequence) and len(given) == 2 and all(type(usd) in (int, float) and usd >= 0 for usd in given):
        return Price(float(given[0]), float(given[1]))
    wanted = "USD per million input and output tokens, such as (0.15, 0.6)"
    raise InputError(f"wrap: prices: {model}: got {short(given)}, wanted {wanted}")


@dataclass(slots=True)
class _Call:
    """A call in flight."""

    answer: Any = None


def _called(original: Method, wrapped: _Wrapped) -> Method:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not (recorder := current()):
            note_lost_call()
            return original(*args, **kwargs)
        row, request = _begun(recorder, wrapped, _request(*args, **kwargs))
        found = (
            loop.run(recorder.ledger.find(row.call_key))
            if row.reusable and recorder.ledger and not loop.is_here()
            else None
        )
        if found:
            return _reuse(recorder, wrapped.name, request, found)
        with _record(recorder, wrapped, request, row) as recorded_call:
            recorded_call.answer = original(*args, **kwargs)
        return recorded_call.answer

    return call


def _awaited(original: Method, wrapped: _Wrapped) -> Method:
    @wraps(original)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not (recorder := current()):
            note_lost_call()
            return await original(*args, **kwargs)
        row, request = _begun(recorder, wrapped, _request(*args, **kwargs))
        if row.reusable and recorder.ledger:
            finding = recorder.ledger.find(row.call_key)
            if found := await (finding if loop.is_here() else asyncio.wrap_future(loop.start(finding))):
                return _reuse(recorder, wrapped.name, request, found)
        with _record(recorder, wrapped, request, row) as recorded_call:
            recorded_call.answer = await original(*args, **kwargs)
        return recorded_call.answer

    return call


def _begun(recorder: Recorder, wrapped: _Wrapped, request: dict[str, Any]) -> tuple[CallRow, dict[str, Any]]:
    """Return the row of a call that is about to be made, and its request. A judge's may be answered by the ledger."""
    row = _row(recorder, wrapped, request)
    is_plain = request.get("n") in (None, 1) and not any(map(request.get, ("stream", "logprobs", "audio")))
    if not wrapped.can_reuse or recorder.ledger is None or not is_plain:
        return row, request
    repeat = recorder.asked[row.call_key]
    recorder.asked[row.call_key] += 1
    key = call_key(row.base_url, {"request": row.request}, repeat)
    return replace(row, call_key=key, reusable=True), request


def _reuse(recorder: Recorder, name: str, request: dict[str, Any], row: CallRow) -> "ChatCompletion":
    """Return an answer of the ledger as the client would, and record it."""
    recorder.answered.append(AnsweredCall(row, cached=True))
    response = from_json(row.response)
    with step("llm", name, request) as note:
        note |= {"model": row.model, "tokens_in": row.tokens_in, "tokens_out": row.tokens_out}
        note |= {"outputs": response, "cost_usd": 0.0}
    usage = None
    if row.tokens_in is not None and row.tokens_out is not None:
        usage = {"prompt_tokens": row.tokens_in, "completion_tokens": row.tokens_out}
        usage["total_tokens"] = sum(usage.values())
    choice = {"index": 0, "finish_reason": row.finish_reason, "message": response["message"]}
    from openai.types.chat import ChatCompletion

    return ChatCompletion.construct(
        id=row.call_id,
        object="chat.completion",
        created=int(row.started_at.timestamp()),
        model=row.answered_by or row.model,
        choices=[choice],
        usage=usage,
    )


@contextmanager
def _record(recorder: Recorder, wrapped: _Wrapped, request: dict[str, Any], row: CallRow) -> Iterator[_Call]:
    """Store the call that the block makes, successful or failed, before its answer is used.

    Raise CallError, before the call is made, if the run's budget is spent, and StorageError if it could not be stored.
    """
    call, may_reuse, started = _Call(), row.reusable, time.perf_counter()
    row = replace(row, reusable=False)  # how the user's code reads the answer is unknown yet
    with step("llm", wrapped.name, request) as note, within_budget(recorder.budget, row) as settle:
        note |= {"model": row.model, "tokens_in": None, "tokens_out": None}
        recorder.begin(row)
        settle(row)  # as long as its answer is unknown
        try:
            yield call
        except Exception as error:
            remember_key(wrapped.client.api_key)
            row = _failed(row, error, time.perf_counter() - started)
            settle(row)
            recorder.failed.append(row)
            recorder.store(row)
            raise
        remember_key(wrapped.client.api_key)
        price = wrapped.price(recorder, row.model, row.base_url)
        row = _answered(row, call.answer, price, time.perf_counter() - started)
        settle(row)
        recorder.store(row)
        recorder.answered.append(AnsweredCall(row))
        recorder.unsure += [row] if may_reuse and row.response is not None else []
        note |= {"outputs": _content(call.answer), "tokens_in": row.tokens_in, "tokens_out": row.tokens_out}
        note |= {"cost_usd": row.cost_usd}


@contextmanager
def within_budget(budget: Budget | None, call: CallRow) -> Iterator[Callable[[CallRow], None]]:
    """Yield the function that settles a call with the run's budget, by its latest row; without one it was not made."""
    if budget is None:
        yield lambda row: None
        return
    reservation = budget.reserve_now(is_priced=call.estimated_usd is not None)
    rows: list[CallRow] = []
    try:
        yield rows.append
    finally:
        last = rows[-1] if rows else call
        budget.settle(
            reservation, last.cost_usd, estimated_usd=last.estimated_usd, paid=bool(rows), tokens_out=last.tokens_out
        )


def _request(path: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Return the request itself, without the options of its transport; `path` is that of `post`."""
    if path is not None:
        body = arguments.get("body")
        return plain(body) if isinstance(body, Mapping) else {"path": path}
    import openai

    omitted = openai.NotGiven | openai.Omit
    body = {k: v for k, v in arguments.items() if k not in _TRANSPORT_OPTIONS and not isinstance(v, omitted)}
    return plain(body | dict(arguments.get("extra_body") or {}))  # type: ignore[no-any-return]


def _row(recorder: Recorder, wrapped: _Wrapped, request: dict[str, Any]) -> CallRow:
    url = wrapped.client.base_url
    base_url = f"{url.scheme}://{url.netloc.decode()}{url.path}".rstrip("/")  # without user name and password
    text, model = without_contents(to_json(request, mend=True)), str(request.get("model") or "")
    estimate = _estimated_usd(wrapped.price(recorder, model, base_url), text, _most_tokens_out(request))
    return begun_call(recorder, base_url, model, text, estimate)


def begun_call(recorder: Recorder, base_url: str, model: str, request: Json, estimated_usd: float | None) -> CallRow:
    """Return the row of a call that the user's own code is about to make."""
    return CallRow(
        call_id=new_id("call"),
        call_key=call_key(base_url, {"request": request}, 0),
        experiment_id=recorder.experiment_id,
        subject_id=recorder.subject_id,
        evaluator=recorder.evaluator,
        connection=CONNECTION,
        base_url=base_url,
        model=model,
        request=request,
        status="failed",
        reusable=False,
        estimated_usd=estimated_usd,
        started_at=now(),
    )


def _most_tokens_out(request: Mapping[str, Any]) -> int:
    limits = (request.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    return next((limit for limit in map(token_count, limits) if limit is not None), LONG_ANSWER)


def _estimated_usd(price: Price | None, request: str, tokens_out: int) -> float | None:
    return price.cost(Tokens(tokens_of_request(request), None, tokens_out)) if price else None


def _failed(row: CallRow, error: Exception, latency_s: float) -> CallRow:
    try:
        fault = classify(error)
        kind, text, is_unknown = fault.kind, str(fault), fault.cost_is_unknown
    except Exception:
        kind, text, is_unknown = "raised", describe(error), True
    text = without_keys(text)  # providers quote the key that they reject
    if not is_unknown and row.estimated_usd is not None:
        row = replace(row, cost_usd=0.0, estimated_usd=None)
    return replace(row, error=text, error_kind=kind, latency_s=latency_s, recorded_at=now())


def _answered(row: CallRow, answer: Any, price: Price | None, latency_s: float) -> CallRow:
    """Return the row with what the answer contains; a stream contains nothing before it is read."""
    choice, content = _choice(answer), _content(answer)
    finish, model = _field(choice, "finish_reason") or _field(answer, "status"), _field(answer, "model")
    used = tokens_of({"usage": plain(_field(answer, "usage"))})
    is_vector = used.into is not None and isinstance(_field(answer, "data"), list)  # it has no tokens out
    cost = price.cost(used) if price and (used.are_reported or is_vector) else None
    estimate = row.estimated_usd
    if content is not None:  # of a stream, the estimate is that of the request
        estimate = _estimated_usd(price, row.request, tokens_of_text(to_json(content, mend=True)))
    return replace(
        row,
        kind="embedding" if is_vector else "chat",
        status="ok",
        response=None if content is None else without_keys(to_json(content, mend=True), MIN_PROVIDER_KEY_CHARS),
        finish_reason=finish if isinstance(finish, str) else None,
        answered_by=model if isinstance(model, str) else None,
        system_fingerprint=served_by if isinstance(served_by := _field(answer, "system_fingerprint"), str) else None,
        tokens_in=used.into,
        tokens_cached=used.cached,
        tokens_out=used.out,
        tokens_reasoning=used.reasoning,
        cost_usd=cost,
        estimated_usd=estimate if cost is None else None,
        latency_s=latency_s,
        recorded_at=now(),
    )


def _content(answer: Any) -> dict[str, Any] | None:
    """Return the message of a chat completion, in the ledger's shape, or the output of a response."""
    if (choice := _choice(answer)) is not None:
        return {"message": plain(_field(choice, "message"))}
    output = _field(answer, "output")
    return {"output": plain(output)} if isinstance(output, list) else None


def _choice(answer: Any) -> Any:
    choices = _field(answer, "choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _field(source: Any, name: str) -> Any:
    """Return a field of an object of the SDK, or of JSON."""
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


@cache
def _carry_recordings() -> None:
    """Let threads and thread pools, as of now, run what an item's code gives them in its context. Other code's is left
    alone. There is no hook for that in Python 3.11, so two methods of the standard library are replaced, once."""
    start: Callable[..., None] = threading.Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    @wraps(start)
    def start_within(self: threading.Thread) -> None:
        if current() is not None:
            self.run = _within(self.run)  # type: ignore[method-assign]
        start(self)

    @wraps(submit)
    def submit_within(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        return submit(self, function if current() is None else _within(function), *args, **kwargs)

    threading.Thread.start = start_within  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_within  # type: ignore[method-assign, assignment]


def _within(function: Callable[..., Any]) -> Callable[..., Any]:
    context = copy_context()

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return context.run(function, *args, **kwargs)

    return run
