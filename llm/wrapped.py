"""What a user's own code does while a run is at hand: the calls of an OpenAI client of theirs, and steps they name."""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import reduce, wraps
from typing import Any, TypeVar

import openai

from llm.budget import Budget
from llm.faults import SHORTEST_OF_A_PROVIDER, classify, remember_key, without_keys
from llm.ledger import call_key
from llm.prices import Tokens, listed_price
from llm.recorder import Answered, Recorder, current
from specs.errors import InputError, describe
from store.records import CallRow, mended, new_id, now, to_json

SomeClient = TypeVar("SomeClient", openai.OpenAI, openai.AsyncOpenAI)
Method = Callable[..., Any]

METHODS = (
    *("chat.completions.create", "chat.completions.parse", "beta.chat.completions.parse"),
    *("responses.create", "responses.parse"),
)
CONNECTION = "wrapped"
"""What the ledger calls the connection of a client that is the user's own."""

_MARK = "__records_calls__"
_NO_PART_OF_THE_REQUEST = {"extra_headers", "extra_query", "extra_body", "timeout"}  # headers may hold a key
_DEEPEST = 20

_step: ContextVar[str | None] = ContextVar("evalflows_step", default=None)


def wrap(client: SomeClient, *, name: str | None = None) -> SomeClient:
    """Record each call of an OpenAI client that is made for a run: in its steps, in the ledger and in its totals.

    Returns the client itself. Calls made elsewhere are as they were. `name` is what the steps are called; the
    method's name where left out. Raises InputError for another kind of client.
    """
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise InputError(f"wrap: got {type(client).__name__}, wanted openai.OpenAI or openai.AsyncOpenAI")
    recorded = _awaited if isinstance(client, openai.AsyncOpenAI) else _called
    for path in METHODS:
        *owners, method = path.split(".")
        resource = reduce(getattr, owners, client)
        original = getattr(resource, method)
        if not hasattr(original, _MARK):  # wrapped twice is wrapped once
            recording = recorded(original, client, name or path)
            setattr(recording, _MARK, True)
            setattr(resource, method, recording)
    return client


@contextmanager
def step(kind: str, name: str, inputs: Any) -> Iterator[dict[str, Any]]:
    """Note what the block does as a step of the run at hand; without one, the note goes nowhere.

    The block may fill the note: its outputs, and whatever else is to be kept. Within another step it names that one
    as its parent.
    """
    parent, identity, began = _step.get(), secrets.token_hex(8), time.perf_counter()
    note: dict[str, Any] = {"id": identity, "parent": parent, "kind": kind, "name": name, "inputs": plain(inputs)}
    note |= {"outputs": None, "error": None, "started_at": now().isoformat(), "latency_s": None}
    if recorder := current():
        recorder.steps.append(note)
    token = _step.set(identity)
    try:
        yield note
    except BaseException as error:
        note["error"] = mended(describe(error))
        raise
    finally:
        _step.reset(token)
        note |= {key: plain(value) for key, value in note.items()} | {"latency_s": time.perf_counter() - began}


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it, whatever it is: a note must not break the code that it is of."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    try:
        if depth == _DEEPEST:
            return repr(value)
        if isinstance(value, Mapping):
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(item, depth + 1) for item in value]
        return plain(_opened(value), depth + 1)
    except Exception:  # of the user's objects: their repr, their properties
        return f"<{type(value).__name__}>"


def _opened(value: Any) -> Any:
    """An object as what it is made of, else as text."""
    if isinstance(value, type):
        return value.model_json_schema() if hasattr(value, "model_json_schema") else value.__qualname__
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True, warnings=False)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else repr(value)


@dataclass(slots=True)
class _Call:
    """A call under way."""

    answer: Any = None


def _called(original: Method, client: openai.OpenAI, name: str) -> Method:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not (recorder := current()):
            return original(*args, **kwargs)
        with _recorded(recorder, client, name, kwargs) as made:
            made.answer = original(*args, **kwargs)
        return made.answer

    return call


def _awaited(original: Method, client: openai.AsyncOpenAI, name: str) -> Method:
    @wraps(original)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not (recorder := current()):
            return await original(*args, **kwargs)
        with _recorded(recorder, client, name, kwargs) as made:
            made.answer = await original(*args, **kwargs)
        return made.answer

    return call


@contextmanager
def _recorded(
    recorder: Recorder, client: openai.OpenAI | openai.AsyncOpenAI, name: str, given: Mapping[str, Any]
) -> Iterator[_Call]:
    """Keep the call that the block makes, whether it is answered or fails, before anyone uses the answer.

    Raises CallError, and makes no call, where the run's budget is spent.
    """
    request = _request(given)
    row, made, began = _row(recorder, client, request), _Call(), time.perf_counter()
    with step("llm", name, request) as note, _within(recorder.budget) as settle:
        note |= {"model": row.model, "tokens_in": None, "tokens_out": None}
        try:
            yield made
        except Exception as error:
            remember_key(client.api_key)
            row = _failed(row, error, time.perf_counter() - began)
            settle(row)
            recorder.failed.append(row)
            recorder.keep(row)
            raise
        remember_key(client.api_key)
        row = _answered(row, made.answer, time.perf_counter() - began)
        settle(row)
        recorder.keep(row)
        recorder.answered.append(Answered(row))
        note |= {"outputs": _content(made.answer), "tokens_in": row.tokens_in, "tokens_out": row.tokens_out}
        note |= {"cost_usd": row.cost_usd}


@contextmanager
def _within(budget: Budget | None) -> Iterator[Callable[[CallRow], None]]:
    """What settles a call with the run's budget; a call that ended in any other way was not paid."""
    if budget is None:
        yield lambda row: None
        return
    number = budget.reserve_now()
    rows: list[CallRow] = []
    try:
        yield rows.append
    finally:
        paid = next((row for row in reversed(rows) if row.latency_s is not None), None)
        cost, out = (paid.cost_usd, paid.tokens_out) if paid else (0.0, None)
        budget.settle(number, cost, paid=paid is not None, tokens_out=out)


def _request(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked, without how it is sent."""
    left_out = openai.NotGiven | openai.Omit
    named = {k: v for k, v in given.items() if k not in _NO_PART_OF_THE_REQUEST and not isinstance(v, left_out)}
    return plain(named | dict(given.get("extra_body") or {}))  # type: ignore[no-any-return]


def _row(recorder: Recorder, client: openai.OpenAI | openai.AsyncOpenAI, request: dict[str, Any]) -> CallRow:
    url = client.base_url
    base_url = f"{url.scheme}://{url.netloc.decode()}{url.path}".rstrip("/")  # without a user's name and password
    text = to_json(request, mend=True)
    return CallRow(
        call_id=new_id("call"),
        call_key=call_key(base_url, {"request": text}, 0),
        experiment_id=recorder.experiment_id,
        subject_id=recorder.subject_id,
        evaluator=recorder.evaluator,
        connection=CONNECTION,
        base_url=base_url,
        model=str(request.get("model") or ""),
        request=text,
        status="failed",
        reusable=False,  # what the user's code does with it is not ours to know
        started_at=now(),
    )


def _failed(row: CallRow, error: Exception, latency_s: float) -> CallRow:
    try:
        fault = classify(error)
        kind, text = fault.kind, str(fault)
    except Exception:
        kind, text = "raised", describe(error)
    text = without_keys(text)  # providers quote the key that they refuse
    priced = listed_price(row.model, row.base_url) is not None
    cost = 0.0 if priced else None
    return replace(row, error=text, error_kind=kind, latency_s=latency_s, cost_usd=cost, recorded_at=now())


def _answered(row: CallRow, answer: Any, latency_s: float) -> CallRow:
    """What an answer tells; a stream tells nothing before it is read."""
    usage, choice = getattr(answer, "usage", None), _choice(answer)
    details = _one_of(usage, "prompt_tokens_details", "input_tokens_details")
    content = _content(answer)
    used = Tokens(
        _one_of(usage, "prompt_tokens", "input_tokens"),
        _one_of(details, "cached_tokens"),
        _one_of(usage, "completion_tokens", "output_tokens"),
    )
    price = listed_price(row.model, row.base_url)
    return replace(
        row,
        status="ok",
        response=None if content is None else without_keys(to_json(content, mend=True), SHORTEST_OF_A_PROVIDER),
        finish_reason=_one_of(choice, "finish_reason") or _one_of(answer, "status"),
        answered_by=_one_of(answer, "model"),
        tokens_in=used.into,
        tokens_cached=used.cached,
        tokens_out=used.out,
        cost_usd=price.cost(used) if price else None,
        latency_s=latency_s,
        recorded_at=now(),
    )


def _content(answer: Any) -> dict[str, Any] | None:
    """The message of a chat completion, as the ledger has it, or the output of a response."""
    if (choice := _choice(answer)) is not None:
        return {"message": plain(choice.message)}
    output = getattr(answer, "output", None)
    return {"output": plain(output)} if isinstance(output, list) else None


def _choice(answer: Any) -> Any:
    choices = getattr(answer, "choices", None)
    return choices[0] if isinstance(choices, list) and choices else None


def _one_of(source: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(source, name, None)) is not None), None)
