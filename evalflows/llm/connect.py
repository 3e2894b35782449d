"""Build `complete` and `embed` for a connection."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from evalflows.llm import local, loop
from evalflows.llm.batches import Batches
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Caller, Completer, Embedder, Endpoint
from evalflows.llm.connections import address, headers_of, key_of, require_sdk
from evalflows.llm.ledger import Ledger
from evalflows.llm.limiter import FIRST_WIDTH, Limiter
from evalflows.llm.local import LOCAL_MODEL, identity_of, serve
from evalflows.llm.repairs import Repairs
from evalflows.specs.connections import ConnectionSpec, HashableHeaders, LocalConnection, RemoteConnection
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Embed

if TYPE_CHECKING:
    from evalflows.llm.client import Client


def completer(
    name: str,
    connection: ConnectionSpec,
    ledger: Ledger,
    *,
    key: str | None = None,
    model: str | None = None,
    budget: Budget | None = None,
    batches: Callable[[], Batches] | None = None,
) -> Completer:
    """Build `complete` for an experiment. `key` takes precedence over the environment's; `batches` are those of the run
    that answer its calls, if any do.

    Client and limiter are shared by all users of a connection in this process. Raise InputError if the connection
    lacks something.
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
    endpoint = _endpoint(name, connection, base_url, identity, key)
    return Completer(Caller(endpoint, ledger, budget or Budget(), batches), model)


def embedder(
    name: str,
    connection: ConnectionSpec,
    ledger: Ledger,
    *,
    key: str | None = None,
    model: str | None = None,
    budget: Budget | None = None,
    batches: Callable[[], Batches] | None = None,
) -> Embed:
    """Build `embed` for an experiment, like `completer`. The local model needs neither a server nor the ledger."""
    if isinstance(connection, LocalConnection):
        local.require_installed()
        return _embed_here
    identity = address(connection).rstrip("/")
    endpoint = _endpoint(name, connection, connection.base_url, identity, key or key_of(name, connection))
    return Embedder(Caller(endpoint, ledger, budget or Budget(), batches), model or connection.embedding_model)


async def _embed_here(texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
    if model not in (None, local.MINILM_MODEL):
        raise CallError(
            "bad_request", f"connection 'local': got embedding model {model!r}, wanted {local.MINILM_MODEL}"
        )
    return await asyncio.to_thread(local.embed, texts)


def first_width(connection: ConnectionSpec) -> int:
    """Return how many calls may be in flight from the start: what the user declares, else a few, since nobody knows."""
    default = RemoteConnection.model_fields["max_in_flight"].default
    return FIRST_WIDTH if connection.max_in_flight == default else connection.max_in_flight


def _endpoint(name: str, connection: ConnectionSpec, base_url: str, identity: str, key: str | None) -> Endpoint:
    require_sdk(name, connection)
    given = connection.headers if isinstance(connection, RemoteConnection) else {}
    headers = HashableHeaders(headers_of(given, f"connection {name!r}", base_url))
    return _shared(name, connection, base_url, identity, key, headers)


@cache
def _shared(
    name: str, connection: ConnectionSpec, base_url: str, identity: str, key: str | None, headers: HashableHeaders
) -> Endpoint:
    own = connection if isinstance(connection, RemoteConnection) else None
    limiter = Limiter(
        connection.max_in_flight,
        first=first_width(connection),
        requests_per_minute=own.requests_per_minute if own else None,
        tokens_per_minute=own.tokens_per_minute if own else None,
    )
    client = _client_class(connection)(base_url, key, connection, headers)
    loop.at_end(client.close)
    return Endpoint(
        name=name,
        connection=connection,
        identity=identity,
        client=client,
        limiter=limiter,
        repairs=Repairs(f"connection {name!r}"),
    )


def _client_class(connection: ConnectionSpec) -> "type[Client]":
    """Return the client of a protocol. Late: each SDK is slow to import, and a run may make no call."""
    match connection.kind:
        case "anthropic":
            from evalflows.llm.protocols.anthropic import AnthropicClient

            return AnthropicClient
        case "google":
            from evalflows.llm.protocols.google import GoogleClient

            return GoogleClient
    from evalflows.llm.protocols.openai import OpenAIClient

    return OpenAIClient
