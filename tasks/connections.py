"""Connections that a run takes from the shared file, and connections that are tried."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Literal

from evaluators.call import Level
from llm import loop
from llm.connect import completer
from llm.connections import AUTO_MODEL, lacks_key, shared, whence_key, without_secrets
from llm.ledger import Ledger
from specs.connection import ConnectionSpec, LocalConnection
from specs.errors import CallError, InputError
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.protocols import Complete, Completion
from specs.target import ChatTarget
from store.parquet import Store
from tasks.keys import key_for
from tasks.resolve import bind_evaluator, connection_name

QUESTION = "Answer with the one word OK."

Outcome = Literal["works", "fails", "not_tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of trying a connection."""

    name: str
    outcome: Outcome
    says: str  # in one line, with no key in it


def settled_connections(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec with what it takes from the shared file written into it, so that whoever goes on with it sees the same.

    Raises InputError for a shared file that is broken, and for an evaluator that cannot be used.
    """
    named = {target.connection for target in spec.targets if isinstance(target, ChatTarget)} | _judges(spec)
    return spec.model_copy(update={"connections": with_shared(spec.connections, named)})


def with_shared(own: Mapping[str, ConnectionSpec], named: set[str]) -> dict[str, ConnectionSpec]:
    """A spec's own connections, and those of the shared file that it names. Raises InputError for a broken file."""
    taken = {name: one for name, one in shared().items() if name in named and name not in own}
    return {**own, **taken}


def try_connections(connections: Mapping[str, ConnectionSpec]) -> Iterator[Trial]:
    """Ask each for one word, all at once, and tell how it went, in their order. Nothing is kept, no attempt repeated.

    One whose key is not set, or that names no model, is not asked.
    """
    with TemporaryDirectory() as nowhere:
        store = Store(nowhere)
        begun = [_begun(name, connection, store) for name, connection in connections.items()]
        for one in begun:
            yield one.result() if isinstance(one, Future) else one


def _judges(spec: ExperimentSpec) -> set[str]:
    """The connections of evaluators, and of those that judge where they are down."""
    levels: list[tuple[Level, list[EvaluatorSpec]]] = [("item", spec.evaluators), ("run", spec.summary_evaluators)]
    every = [(level, judge) for level, judges in levels for each in judges for judge in (each, each.fallback) if judge]
    names = {connection_name(judge, bind_evaluator(judge, level)) for level, judge in every}
    return {name for name in names if name} | named_by_pairwise(spec.compare.evaluators if spec.compare else ())


def named_by_pairwise(judges: Iterable[FallbackSpec]) -> set[str]:
    """The connections of pairwise evaluators."""
    names = (connection_name(judge, bind_evaluator(judge, "pair")) for judge in judges)
    return {name for name in names if name}


def _begun(name: str, connection: ConnectionSpec, store: Store) -> "Trial | Future[Trial]":
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if lack := _lack(connection, model):
        return Trial(name=name, outcome="not_tried", says=lack)
    key = None
    try:
        key = key_for(name, connection)
        once = connection.model_copy(update={"attempts": 1})
        # A ledger each: another connection's answer says nothing of this one's key.
        complete = completer(name, once, Ledger(store, name, fresh=True), key=key, model=model)
    except (InputError, RuntimeError) as error:  # the latter of a GGUF file that is none
        says = str(error).removeprefix(f"connection {name!r}: ")
        return Trial(name=name, outcome="fails", says=without_secrets(says, connection, key))
    return loop.start(_tried(name, connection, complete, key))


def _lack(connection: ConnectionSpec, model: str | None) -> str | None:
    """Why a connection cannot be asked, if so."""
    if lacks_key(connection):
        return whence_key(connection)
    has_model = model or isinstance(connection, LocalConnection)
    return None if has_model else "names no model, wanted one to ask"


async def _tried(name: str, connection: ConnectionSpec, complete: Complete, key: str | None) -> Trial:
    try:
        answer = await _answer(complete)
    except CallError as error:
        says = " ".join(without_secrets(str(error), connection, key).split())
        return Trial(name=name, outcome="fails", says=says)
    says = f"{answer.latency_s or 0:.2f} s, {answer.model} answered"
    return Trial(name=name, outcome="works", says=without_secrets(says, connection, key))


async def _answer(complete: Complete) -> Completion:
    """Some models take no max_tokens, but its later name, and they think before they answer."""
    try:
        return await complete(QUESTION, max_tokens=5)
    except CallError as error:
        if error.kind != "bad_request" or "max_tokens" not in str(error):
            raise
        return await complete(QUESTION, max_completion_tokens=200)
