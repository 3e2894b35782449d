"""The model that compares: a connection's name, a `complete` function, or any object with `invoke`."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.caller import Caller, Endpoint
from evalflows.llm.complete import Completer
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import AUTO_MODEL, key_of, resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.local import MODEL as LOCAL_MODEL
from evalflows.llm.recorder import current
from evalflows.specs.connection import ConnectionSpec, EndpointConnection
from evalflows.specs.errors import InputError, short
from evalflows.specs.protocols import Completion
from evalflows.specs.reference import is_async
from evalflows.store.parquet import Store

Request = str | list[Any]
Schema = Mapping[str, Any]

EMBEDDING_MODEL = "text-embedding-3-small"
"""The model of the connection `openai` for vectors, unless the connection names one."""

_ROLES = {"human": "user", "ai": "assistant"}
_TRUNCATED = ("length", "max_tokens")  # finish reasons of OpenAI and Anthropic


class Answer(NamedTuple):
    """A model's answer: its text and, if a schema was requested, its fields."""

    text: str
    fields: Any = None


@dataclass(frozen=True)
class Connected:
    """`complete` of a connection; inside an experiment it uses that run's budget."""

    endpoint: Endpoint
    model: str

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        recorder = current()
        budget = recorder.budget if recorder else None
        complete = Completer(Caller(self.endpoint, _ledger(), budget or Budget()), self.model)
        return await complete(messages, **parameters)


@dataclass(frozen=True)
class ByComplete:
    """A `complete` function, ours or the user's own, sync or async."""

    complete: Callable[..., Any]
    parameters: Mapping[str, Any]
    takes_schema = True

    def ask(self, request: Request, schema: Schema | None) -> Answer:
        """Ask the model. Raises InputError on the event loop of the model calls, which cannot wait for itself."""
        if threading.current_thread().name == "evalflows-calls":
            raise InputError("evaluate_string_pairs: got a call from an async function, wanted aevaluate_string_pairs")
        answer = self._call(request, schema)
        return _of_completion(loop.run(_await(answer)) if inspect.isawaitable(answer) else answer)

    async def aask(self, request: Request, schema: Schema | None) -> Answer:
        if not is_async(self.complete):
            answer = await asyncio.to_thread(self._call, request, schema)
        elif isinstance(self.complete, Completer | Connected):  # bound to one event loop
            answer = asyncio.wrap_future(loop.start(_await(self._call(request, schema))))
        else:
            answer = self._call(request, schema)
        return _of_completion(await answer if inspect.isawaitable(answer) else answer)

    def _call(self, request: Request, schema: Schema | None) -> Any:
        messages = request if isinstance(request, str) else [_message(message) for message in request]
        schema_argument = {} if schema is None else {"schema": dict(schema)}
        return self.complete(messages, **schema_argument, **self.parameters)


@dataclass(frozen=True)
class ByInvoke:
    """An object that is invoked with a text or messages, such as a LangChain chat model."""

    model: Any
    parameters: Mapping[str, Any]
    takes_schema = False

    def ask(self, request: Request, schema: Schema | None) -> Answer:
        return _of_message(self.model.invoke(request, **self.parameters))

    async def aask(self, request: Request, schema: Schema | None) -> Answer:
        if hasattr(self.model, "ainvoke"):
            return _of_message(await self.model.ainvoke(request, **self.parameters))
        return await asyncio.to_thread(self.ask, request, schema)


def model_of(llm: object, parameters: Mapping[str, Any] | None) -> ByComplete | ByInvoke:
    """Return the model with its parameters; a parameter that is None is left to the model.

    Raises InputError for an unusable model, an unknown connection, and one without a key or a model.
    """
    own = dict(parameters or {})
    if callable(getattr(llm, "invoke", None)):
        return ByInvoke(llm, own)
    merged = {name: value for name, value in ({"temperature": 0.0} | own).items() if value is not None}
    if llm is None or isinstance(llm, str):
        return ByComplete(_connected("openai" if llm is None else llm), merged)
    if callable(llm):
        return ByComplete(llm, merged)
    raise InputError(f"llm: got {short(llm)}, wanted a connection's name, a function, or an object with invoke")


def openai_embedding(texts: Sequence[str]) -> list[list[float]]:
    """Return the vectors of texts by the connection `openai`, within the budget of the current run, if any.

    Raises InputError if the connection cannot be used, and CallError for an unanswered call.
    """
    connection, recorder = resolve("openai", {}), current()
    budget = recorder.budget if recorder else None
    embed = embedder("openai", connection, _ledger(), key=_key("openai", connection), budget=budget)
    own = getattr(connection, "embedding_model", None)
    return loop.run(embed(texts, **({} if own else {"model": EMBEDDING_MODEL})))


def _connected(name: str) -> Connected:
    connection = resolve(name, {})
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if model is None and isinstance(connection, EndpointConnection):
        raise InputError(f"connection {name!r}: got no model, wanted one")
    complete = completer(name, connection, _ledger(), key=_key(name, connection), model=model)
    return Connected(complete.endpoint, model or LOCAL_MODEL)


def _key(name: str, connection: ConnectionSpec) -> str | None:
    if not isinstance(connection, EndpointConnection):
        return None
    if connection.api_key_block is None:
        return key_of(name, connection)
    # Late: Prefect, which stores the block, takes seconds to import.
    from evalflows.execution.preflight.connections import key_for

    return key_for(name, connection)


@cache
def _ledger() -> Ledger:
    """Return this process's own ledger: these calls belong to no experiment, so they are not stored."""
    with TemporaryDirectory() as empty:
        return Ledger(Store(empty), "", fresh=True)


async def _await(answer: Any) -> Any:
    return await answer


def _message(message: Any) -> dict[str, Any]:
    """Convert a LangChain message to the provider's format."""
    if isinstance(message, Mapping):
        return dict(message)
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}


def _of_completion(answer: Any) -> Answer:
    text, is_truncated = getattr(answer, "text", answer), getattr(answer, "finish_reason", None) in _TRUNCATED
    return Answer(_checked(text, is_truncated), getattr(answer, "parsed", None))


def _of_message(answer: Any) -> Answer:
    content, metadata = getattr(answer, "content", answer), getattr(answer, "response_metadata", None) or {}
    if isinstance(content, list):  # blocks: join those with text
        content = "".join(block if isinstance(block, str) else block.get("text", "") for block in content)
    is_truncated = bool({metadata.get("finish_reason"), metadata.get("stop_reason")} & {*_TRUNCATED})
    return Answer(_checked(content, is_truncated))


def _checked(text: object, is_truncated: bool) -> str:
    """Return the text. Raises ValueError if it is not text or was truncated: tags in it may be quotations."""
    if not isinstance(text, str):
        raise ValueError(f"llm: got {short(text)}, wanted a text, or a message with content")
    if is_truncated:
        raise ValueError(f"llm: got {short(text)}, wanted an answer that was not cut off at the token limit")
    return text
