"""Dry-run targets and judges to record the model requests they would make, without making them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, cast

from evalflows.evaluators.call import Bound, offer_pair, offer_run
from evalflows.evaluators.subject import RunView
from evalflows.execution.views import example_view
from evalflows.llm.budget import Budget
from evalflows.llm.caller import BYTES_A_TOKEN, LONG_ANSWER, Caller, Endpoint, Kind, Read
from evalflows.llm.client import Client
from evalflows.llm.complete import Completer
from evalflows.llm.connections import address
from evalflows.llm.embed import Embedder
from evalflows.llm.ledger import Ledger
from evalflows.llm.limiter import Limiter
from evalflows.llm.local import MODEL, identity_of
from evalflows.specs.connection import ConnectionSpec, LocalConnection
from evalflows.specs.target import ChatTarget
from evalflows.store.records import CallRow, ExampleRow, to_json
from evalflows.targets import chat

STANDS_FOR_AN_ANSWER = {"output": "."}
"""The output shown to a judge if an example has no reference."""


class OverheardError(Exception):
    """Raised instead of making a model call; the text is the call's key."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One recorded request."""

    key: str
    tokens_in: int  # estimated from above, as budgets do
    tokens_out: int


class _NoLedger(Ledger):
    """A ledger that ends every call at its lookup."""

    def __init__(self) -> None:
        self.in_flight = {}

    async def find(self, key: str) -> CallRow | None:
        raise OverheardError(key)


class Listener(Caller):
    """A caller that records requests instead of making them."""

    def __init__(self, name: str, connection: ConnectionSpec) -> None:
        endpoint = Endpoint(
            name=name,
            connection=connection,
            identity=identity(connection),
            client=cast("Client", None),  # neither is reached
            limiter=cast("Limiter", None),
        )
        super().__init__(endpoint, _NoLedger(), Budget())
        self.heard: list[Heard] = []

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        try:
            return await super().call(kind, request, read, repeat)
        except OverheardError as overheard:
            self.heard.append(Heard(str(overheard), *_tokens(kind, request)))
            raise


def identity(connection: ConnectionSpec) -> str:
    """The identity of a connection in ledger keys."""
    return identity_of(connection) if isinstance(connection, LocalConnection) else address(connection).rstrip("/")


def model_of(connection: ConnectionSpec, named: str | None, *, embeds: bool = False) -> str:
    """The model used by a target or evaluator that names this model, or None."""
    if embeds:
        return named or connection.embedding_model or ""
    return named or connection.model or (MODEL if isinstance(connection, LocalConnection) else "")


def heard_of_chat(
    spec: ChatTarget, connection: ConnectionSpec, examples: Sequence[ExampleRow], repetitions: int
) -> list[Heard]:
    """The requests of a chat target, one per example and repetition."""
    listener = Listener(spec.connection, connection)
    target = chat(spec, Completer(listener, model_of(connection, None)))

    async def all_of_them() -> None:
        for example in examples:
            inputs = example_view(example).inputs
            for repetition in range(repetitions):
                await _until_it_asks(lambda given: target.call(given), {"inputs": inputs, "repetition": repetition})

    _on_a_loop(all_of_them)
    return listener.heard


def heard_of_judge(
    bound: Bound, name: str, connection: ConnectionSpec, model: str | None, examples: Sequence[ExampleRow]
) -> list[list[Heard] | None]:
    """The requests of a built-in judge on each example, with the reference in place of the answer.

    None for an example on which the judge raised before any request.
    """
    listener = Listener(name, connection)
    complete = Completer(listener, model_of(connection, model))
    embed = Embedder(listener, model_of(connection, model, embeds=True))
    found: list[list[Heard] | None] = []

    async def all_of_them() -> None:
        for example in examples:
            listener.heard = []
            available = {**_offered(bound, example), "complete": complete, "embed": embed}
            ended = await _until_it_asks(bound.call, available)
            found.append(listener.heard if ended else None)

    _on_a_loop(all_of_them)
    return found


def _offered(bound: Bound, example: ExampleRow) -> dict[str, Any]:
    seen = example_view(example)
    run = RunView(id="", inputs=seen.inputs, outputs=dict(seen.reference_outputs or STANDS_FOR_AN_ANSWER))
    return offer_pair(seen, run, run) if bound.scope == "pair" else offer_run(seen, run)


async def _until_it_asks(call: Callable[[Mapping[str, Any]], Any], available: Mapping[str, Any]) -> bool:
    """Whether the call reached a model request or returned; False if it raised."""
    try:
        returned = call(available)
        if isawaitable(returned):
            await returned
    except OverheardError:
        return True
    except Exception:  # the reference is not a real answer, so a judge may fail on it
        return False
    return True


def _on_a_loop(work: Callable[[], Awaitable[None]]) -> None:
    """Run on a new thread: the caller may already have an event loop."""

    async def whole() -> None:
        await work()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(whole())).result()


def _tokens(kind: Kind, request: Mapping[str, Any]) -> tuple[int, int]:
    """Estimate tokens as a budget does before the first answer."""
    into = -(-len(to_json(request).encode()) // BYTES_A_TOKEN)
    most = request.get("max_completion_tokens") or request.get("max_tokens")
    return into, 0 if kind == "embedding" else most if isinstance(most, int) else LONG_ANSWER
