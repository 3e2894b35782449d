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

PLACEHOLDER_OUTPUT = {"output": "."}
"""The answer that a judge gets for an example without a reference."""


class RequestRecordedError(Exception):
    """Raised instead of making a model call; the text is the call's key."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A model request that was recorded instead of sent."""

    key: str
    tokens_in: int  # an upper estimate, as in budgets
    tokens_out: int


class _NoLedger(Ledger):
    """A ledger whose lookup ends every call."""

    def __init__(self) -> None:
        self.in_flight = {}

    async def find(self, key: str) -> CallRow | None:
        raise RequestRecordedError(key)


class RequestRecorder(Caller):
    """A caller that records requests instead of making them."""

    def __init__(self, name: str, connection: ConnectionSpec) -> None:
        endpoint = Endpoint(
            name=name,
            connection=connection,
            identity=identity(connection),
            client=cast("Client", None),  # neither is used: the ledger ends the call first
            limiter=cast("Limiter", None),
        )
        super().__init__(endpoint, _NoLedger(), Budget())
        self.requests: list[RecordedRequest] = []

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        try:
            return await super().call(kind, request, read, repeat)
        except RequestRecordedError as recorded:
            self.requests.append(RecordedRequest(str(recorded), *_tokens(kind, request)))
            raise


def identity(connection: ConnectionSpec) -> str:
    """The identity of a connection in ledger keys: its URL, or the identity of the local model."""
    return identity_of(connection) if isinstance(connection, LocalConnection) else address(connection).rstrip("/")


def model_of(connection: ConnectionSpec, named: str | None, *, embeds: bool = False) -> str:
    """The model that a target or evaluator uses: the one it names, else the connection's default."""
    if embeds:
        return named or connection.embedding_model or ""
    return named or connection.model or (MODEL if isinstance(connection, LocalConnection) else "")


def chat_requests(
    spec: ChatTarget, connection: ConnectionSpec, examples: Sequence[ExampleRow], repetitions: int
) -> list[RecordedRequest]:
    """The requests of a chat target, one per example and repetition."""
    recorder = RequestRecorder(spec.connection, connection)
    target = chat(spec, Completer(recorder, model_of(connection, None)))

    async def dry_run_all() -> None:
        for example in examples:
            view = example_view(example)
            fields = {"inputs": view.inputs, "metadata": view.metadata}
            for repetition in range(repetitions):
                await _dry_run(lambda given: target.call(given), fields | {"repetition": repetition})

    _run_in_thread(dry_run_all)
    return recorder.requests


def judge_requests(
    bound: Bound, name: str, connection: ConnectionSpec, model: str | None, examples: Sequence[ExampleRow]
) -> list[list[RecordedRequest] | None]:
    """The requests of a built-in judge on each example, with the reference as the answer.

    None for an example on which the judge raised before any request.
    """
    recorder = RequestRecorder(name, connection)
    complete = Completer(recorder, model_of(connection, model))
    embed = Embedder(recorder, model_of(connection, model, embeds=True))
    by_example: list[list[RecordedRequest] | None] = []

    async def dry_run_all() -> None:
        for example in examples:
            recorder.requests = []
            available = {**_arguments(bound, example), "complete": complete, "embed": embed}
            reached = await _dry_run(bound.call, available)
            by_example.append(recorder.requests if reached else None)

    _run_in_thread(dry_run_all)
    return by_example


def _arguments(bound: Bound, example: ExampleRow) -> dict[str, Any]:
    view = example_view(example)
    run = RunView(id="", inputs=view.inputs, outputs=dict(view.reference_outputs or PLACEHOLDER_OUTPUT))
    return offer_pair(view, run, run) if bound.scope == "pair" else offer_run(view, run)


async def _dry_run(call: Callable[[Mapping[str, Any]], Any], available: Mapping[str, Any]) -> bool:
    """Whether the call made a model request or returned; False if it raised before either."""
    try:
        returned = call(available)
        if isawaitable(returned):
            await returned
    except RequestRecordedError:
        return True
    except Exception:  # a judge may fail on a reference, which is not a real answer
        return False
    return True


def _run_in_thread(work: Callable[[], Awaitable[None]]) -> None:
    """Run in a new thread: the caller may already have a running event loop."""

    async def run() -> None:
        await work()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(run())).result()


def _tokens(kind: Kind, request: Mapping[str, Any]) -> tuple[int, int]:
    """Estimate tokens as a budget does before the first answer."""
    tokens_in = -(-len(to_json(request).encode()) // BYTES_A_TOKEN)
    max_tokens = request.get("max_completion_tokens") or request.get("max_tokens")
    return tokens_in, 0 if kind == "embedding" else max_tokens if isinstance(max_tokens, int) else LONG_ANSWER
