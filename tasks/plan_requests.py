"""What targets and judges would ask a model, found without asking: how often, how much, under which keys."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, cast

from evaluators.call import Bound, offer_pair, offer_run
from evaluators.subject import RunView
from llm.budget import Budget
from llm.caller import BYTES_A_TOKEN, LONG_ANSWER, Caller, Endpoint, Kind, Read
from llm.client import Client
from llm.complete import Completer
from llm.connections import address
from llm.embed import Embedder
from llm.ledger import Ledger
from llm.limiter import Limiter
from llm.local import MODEL, identity_of
from specs.connection import ConnectionSpec, LocalConnection
from specs.target import ChatTarget
from store.records import CallRow, ExampleRow, to_json
from targets import chat
from tasks.subject import example_view

STANDS_FOR_AN_ANSWER = {"output": "."}
"""Where an example has no reference that could."""


class OverheardError(Exception):
    """Somebody has come so far as to ask a model; the text is the call's key."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One call that would have been made."""

    key: str
    tokens_in: int  # estimated from above, as budgets do
    tokens_out: int


class _NoLedger(Ledger):
    """Has no answer to anything, and ends the call."""

    def __init__(self) -> None:
        self.under_way = {}

    async def find(self, key: str) -> CallRow | None:
        raise OverheardError(key)


class Listener(Caller):
    """Takes the place of a caller: it notes what it is asked, and asks nobody."""

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
    """What stands for a connection in the ledger."""
    return identity_of(connection) if isinstance(connection, LocalConnection) else address(connection).rstrip("/")


def model_of(connection: ConnectionSpec, named: str | None, *, embeds: bool = False) -> str:
    """The model that is asked where a target or an evaluator names this one, or none."""
    if embeds:
        return named or connection.embedding_model or ""
    return named or connection.model or (MODEL if isinstance(connection, LocalConnection) else "")


def heard_of_chat(
    spec: ChatTarget, connection: ConnectionSpec, examples: Sequence[ExampleRow], repetitions: int
) -> list[Heard]:
    """The calls of a chat target, one an example and repetition."""
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
    """The calls of one of our own judges on each example, the reference standing for the answer.

    None for an example on which it ended otherwise than by asking, or by saying that it does not apply.
    """
    listener = Listener(name, connection)
    complete = Completer(listener, model_of(connection, model))
    embed = Embedder(listener, model_of(connection, model, embeds=True))
    found: list[list[Heard] | None] = []

    async def all_of_them() -> None:
        for example in examples:
            listener.heard = []
            offered = {**_offered(bound, example), "complete": complete, "embed": embed}
            ended = await _until_it_asks(bound.call, offered)
            found.append(listener.heard if ended else None)

    _on_a_loop(all_of_them)
    return found


def _offered(bound: Bound, example: ExampleRow) -> dict[str, Any]:
    seen = example_view(example)
    run = RunView(id="", inputs=seen.inputs, outputs=dict(seen.reference_outputs or STANDS_FOR_AN_ANSWER))
    return offer_pair(seen, run, run) if bound.level == "pair" else offer_run(seen, run)


async def _until_it_asks(call: Callable[[Mapping[str, Any]], Any], offered: Mapping[str, Any]) -> bool:
    """Whether it asked, or said at once that there is nothing to ask."""
    try:
        returned = call(offered)
        if isawaitable(returned):
            await returned
    except OverheardError:
        return True
    except Exception:  # of an answer that is none: what a run's own answers are like is not known here
        return False
    return True


def _on_a_loop(work: Callable[[], Awaitable[None]]) -> None:
    """Whoever plans may have an event loop of their own."""

    async def whole() -> None:
        await work()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(whole())).result()


def _tokens(kind: Kind, request: Mapping[str, Any]) -> tuple[int, int]:
    """As a budget sets them aside before a first answer has come."""
    into = -(-len(to_json(request).encode()) // BYTES_A_TOKEN)
    most = request.get("max_completion_tokens") or request.get("max_tokens")
    return into, 0 if kind == "embedding" else most if isinstance(most, int) else LONG_ANSWER
