"""What compares: a connection by its name, a `complete` function, or any object with `invoke`."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from llm import loop
from llm.budget import Budget
from llm.caller import Caller, Endpoint
from llm.complete import Completer
from llm.connect import completer
from llm.connections import AUTO_MODEL, key_of, resolve
from llm.ledger import Ledger
from llm.local import MODEL as LOCAL_MODEL
from llm.recorder import current
from specs.connection import ConnectionSpec, EndpointConnection
from specs.errors import InputError, short
from specs.protocols import Completion
from specs.reference import is_async
from store.parquet import Store

Request = str | list[Any]
Schema = Mapping[str, Any]

_ROLES = {"human": "user", "ai": "assistant"}
_CUT = ("length", "max_tokens")  # what OpenAI and Anthropic call it


class Said(NamedTuple):
    """A model's answer: its text, and where a schema was asked for its fields."""

    text: str
    fields: Any = None


@dataclass(frozen=True)
class Connected:
    """`complete` of a connection; inside an experiment it spends of that run's budget."""

    endpoint: Endpoint
    model: str

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        recorder = current()
        budget = recorder.budget if recorder else None
        complete = Completer(Caller(self.endpoint, _ledger(), budget or Budget()), self.model)
        return await complete(messages, **parameters)


@dataclass(frozen=True)
class ByComplete:
    """A `complete` function, ours or the program's own, plain or async."""

    complete: Callable[..., Any]
    parameters: Mapping[str, Any]
    takes_schema = True

    def ask(self, request: Request, schema: Schema | None) -> Said:
        """Raises InputError on the loop of the model calls, which cannot wait for itself."""
        if threading.current_thread().name == "evalflows-calls":
            raise InputError("evaluate_string_pairs: got a call from an async function, wanted aevaluate_string_pairs")
        answer = self._begun(request, schema)
        return _of_completion(loop.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)

    async def aask(self, request: Request, schema: Schema | None) -> Said:
        if not is_async(self.complete):
            answer = await asyncio.to_thread(self._begun, request, schema)
        elif isinstance(self.complete, Completer | Connected):  # lives on one loop
            answer = asyncio.wrap_future(loop.start(_awaited(self._begun(request, schema))))
        else:
            answer = self._begun(request, schema)
        return _of_completion(await answer if inspect.isawaitable(answer) else answer)

    def _begun(self, request: Request, schema: Schema | None) -> Any:
        messages = request if isinstance(request, str) else [_message(message) for message in request]
        asked = {} if schema is None else {"schema": dict(schema)}
        return self.complete(messages, **asked, **self.parameters)


@dataclass(frozen=True)
class ByInvoke:
    """An object that is invoked with a text, or with messages, such as a chat model of LangChain's."""

    model: Any
    parameters: Mapping[str, Any]
    takes_schema = False

    def ask(self, request: Request, schema: Schema | None) -> Said:
        return _of_message(self.model.invoke(request, **self.parameters))

    async def aask(self, request: Request, schema: Schema | None) -> Said:
        if hasattr(self.model, "ainvoke"):
            return _of_message(await self.model.ainvoke(request, **self.parameters))
        return await asyncio.to_thread(self.ask, request, schema)


def model_of(llm: object, parameters: Mapping[str, Any] | None) -> ByComplete | ByInvoke:
    """What is asked, and with which parameters; those that are None are left to the model.

    Raises InputError for what cannot be asked, for an unknown connection, and for one without a key or a model.
    """
    given = dict(parameters or {})
    if callable(getattr(llm, "invoke", None)):
        return ByInvoke(llm, given)
    given = {name: value for name, value in ({"temperature": 0.0} | given).items() if value is not None}
    if llm is None or isinstance(llm, str):
        return ByComplete(_connected("openai" if llm is None else llm), given)
    if callable(llm):
        return ByComplete(llm, given)
    raise InputError(f"llm: got {short(llm)}, wanted a connection's name, a function, or an object with invoke")


def _connected(name: str) -> Connected:
    connection = resolve(name, {})
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if model is None and isinstance(connection, EndpointConnection):
        raise InputError(f"connection {name!r}: names no model, wanted one to ask")
    ready = completer(name, connection, _ledger(), key=_key(name, connection), model=model)
    return Connected(ready.endpoint, model or LOCAL_MODEL)


def _key(name: str, connection: ConnectionSpec) -> str | None:
    if not isinstance(connection, EndpointConnection):
        return None
    if connection.api_key_block is None:
        return key_of(name, connection)
    from flows.connections import key_for  # Prefect, which has the block, takes seconds to import

    return key_for(name, connection)


@cache
def _ledger() -> Ledger:
    """Of this process alone: no experiment pays for these calls, so no store has a place for them."""
    with TemporaryDirectory() as nowhere:
        return Ledger(Store(nowhere), "", fresh=True)


async def _awaited(answer: Any) -> Any:
    return await answer


def _message(message: Any) -> dict[str, Any]:
    """A message of LangChain's as a provider takes it."""
    if isinstance(message, Mapping):
        return dict(message)
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}


def _of_completion(answer: Any) -> Said:
    text, cut = getattr(answer, "text", answer), getattr(answer, "finish_reason", None) in _CUT
    return Said(_whole(text, cut), getattr(answer, "parsed", None))


def _of_message(answer: Any) -> Said:
    content, told = getattr(answer, "content", answer), getattr(answer, "response_metadata", None) or {}
    if isinstance(content, list):  # blocks, of which those of text count
        content = "".join(block if isinstance(block, str) else block.get("text", "") for block in content)
    return Said(_whole(content, bool({told.get("finish_reason"), told.get("stop_reason")} & {*_CUT})))


def _whole(text: object, cut: bool) -> str:
    """Raises ValueError for no text, and for one that was cut off: the marks it has may be quoted."""
    if not isinstance(text, str):
        raise ValueError(f"llm: got {short(text)}, wanted a text, or a message with content")
    if cut:
        raise ValueError(f"llm: got {short(text)}, wanted an answer that was not cut off at the token limit")
    return text
