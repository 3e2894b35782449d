"""From a connection's name to `complete` and `embed`."""

import asyncio
from collections.abc import Sequence
from functools import cache

from llm import loop, minilm
from llm.budget import Budget
from llm.caller import Caller, Endpoint
from llm.client import Client
from llm.complete import Completer
from llm.connections import address, key_of
from llm.embed import Embedder
from llm.ledger import Ledger
from llm.limiter import Limiter
from llm.local import MODEL as LOCAL_MODEL
from llm.local import identity_of, serve
from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.errors import CallError
from specs.protocols import Embed


def completer(
    name: str,
    connection: ConnectionSpec,
    ledger: Ledger,
    *,
    key: str | None = None,
    model: str | None = None,
    budget: Budget | None = None,
) -> Completer:
    """`complete` for an experiment. `key` beats the environment's. Raises InputError for what the connection lacks.

    Client and limiter are one per process and connection, whoever uses them.
    """
    if isinstance(connection, LocalConnection):
        model, base_url, identity = (
            model or connection.model or LOCAL_MODEL,
            serve(connection),
            identity_of(connection),
        )
    else:
        model, base_url, identity = model or connection.model, connection.base_url, address(connection).rstrip("/")
        key = key or key_of(name, connection)
    return Completer(Caller(_endpoint(name, connection, base_url, identity, key), ledger, budget or Budget()), model)


def embedder(
    name: str,
    connection: ConnectionSpec,
    ledger: Ledger,
    *,
    key: str | None = None,
    model: str | None = None,
    budget: Budget | None = None,
) -> Embed:
    """`embed` for an experiment, as `completer`; on this machine it needs no server, and its vectors no ledger."""
    if isinstance(connection, LocalConnection):
        minilm.available()
        return _embed_here
    identity = address(connection).rstrip("/")
    endpoint = _endpoint(name, connection, connection.base_url, identity, key or key_of(name, connection))
    return Embedder(Caller(endpoint, ledger, budget or Budget()), model or connection.embedding_model)


async def _embed_here(texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
    if model not in (None, minilm.MODEL):
        raise CallError(
            "bad_request", f"connection 'local': got the embedding model {model!r}, has {minilm.MODEL} only"
        )
    return await asyncio.to_thread(minilm.embed, texts)


@cache
def _endpoint(name: str, connection: ConnectionSpec, base_url: str, identity: str, key: str | None) -> Endpoint:
    own = connection if isinstance(connection, EndpointConnection) else None
    limiter = Limiter(
        connection.max_in_flight,
        requests_per_minute=own.requests_per_minute if own else None,
        tokens_per_minute=own.tokens_per_minute if own else None,
    )
    client = Client(base_url, key, connection)
    loop.at_end(client.close)
    return Endpoint(name=name, connection=connection, identity=identity, client=client, limiter=limiter)
