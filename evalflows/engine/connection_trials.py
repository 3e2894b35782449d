"""Trial calls of connections: each is asked for one word."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from tempfile import TemporaryDirectory
from typing import Literal

from evalflows.engine.secret_blocks import key_for
from evalflows.llm import loop
from evalflows.llm.connect import completer
from evalflows.llm.connections import AUTO_MODEL, key_source, lacks_key, without_key
from evalflows.llm.ledger import Ledger
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.errors import CallError, InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Complete, Completion
from evalflows.store.store import Store

__all__ = ["Trial", "try_connections"]

QUESTION = "Answer with the one word OK."

Outcome = Literal["works", "fails", "not_tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a trial call to a connection."""

    name: str
    outcome: Outcome
    message: str  # one line, without the key


def try_connections(connections: Mapping[str, ConnectionSpec]) -> Iterator[Trial]:
    """Ask each connection for one word, all at once, and yield the outcomes in order. Nothing is stored or retried.

    Connections without a key or a model are not called.
    """
    with TemporaryDirectory() as folder:
        store = Store(folder)
        trials = [_start(name, connection, store) for name, connection in connections.items()]
        for trial in trials:
            yield trial.result() if isinstance(trial, Future) else trial


def _start(name: str, connection: ConnectionSpec, store: Store) -> "Trial | Future[Trial]":
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if reason := _why_not(connection, model):
        return Trial(name=name, outcome="not_tried", message=reason)
    key = None
    try:
        key = key_for(name, connection)
        once = connection.model_copy(update={"attempts": 1})
        # One ledger each: a cached answer of another connection says nothing about this key.
        complete = completer(name, once, Ledger(store, name, fresh=True), key=key, model=model)
    except (InputError, RuntimeError) as error:  # RuntimeError: not a GGUF file
        message = str(error).removeprefix(f"connection {name!r}: ")
        return Trial(name=name, outcome="fails", message=without_key(message, key))
    return loop.start(_try(name, complete, key))


def _why_not(connection: ConnectionSpec, model: str | None) -> str | None:
    """Return why a connection cannot be called; None if it can."""
    if lacks_key(connection):
        return key_source(connection)
    has_model = model or isinstance(connection, LocalConnection)
    return None if has_model else "no model configured, wanted one to ask"


async def _try(name: str, complete: Complete, key: str | None) -> Trial:
    try:
        answer = await _answer(complete)
    except CallError as error:
        message = " ".join(without_key(str(error), key).split())
        return Trial(name=name, outcome="fails", message=message)
    message = f"{answer.latency_s or 0:.2f} s, {answer.model} answered"
    return Trial(name=name, outcome="works", message=without_key(message, key))


async def _answer(complete: Complete) -> Completion:
    """Ask the question. Some models need room for reasoning."""
    try:
        return await complete(QUESTION, max_tokens=5)
    except CallError as error:
        if error.kind not in ("empty_answer", "truncated"):
            raise
        return await complete(QUESTION, max_completion_tokens=200)
