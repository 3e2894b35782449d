"""From a connection's name to `complete`."""

from functools import cache

from llm.client import Client
from llm.complete import Completer
from llm.connections import key_of
from llm.ledger import Ledger
from llm.limiter import FixedLimiter, Limiter
from llm.local import MODEL as LOCAL_MODEL
from llm.local import identity_of, serve
from specs.connection import ConnectionSpec, LocalConnection


def completer(
    name: str, connection: ConnectionSpec, ledger: Ledger, *, key: str | None = None, model: str | None = None
) -> Completer:
    """`complete` for an experiment. `key` beats the environment's. Raises InputError for what the connection lacks.

    Client and limiter are one per process and connection, whoever uses them.
    """
    if isinstance(connection, LocalConnection):
        base_url, identity, model = serve(connection), identity_of(connection), model or connection.model or LOCAL_MODEL
    else:
        base_url, identity = connection.base_url, connection.base_url.rstrip("/")
        key = key or key_of(name, connection)
    client, limiter = _shared(base_url, key, connection.max_in_flight, connection.timeout_s)
    return Completer(name, connection, client, limiter, ledger, identity, model)


@cache
def _shared(base_url: str, key: str | None, max_in_flight: int, timeout_s: float) -> tuple[Client, Limiter]:
    return Client(base_url, key, max_in_flight=max_in_flight, timeout_s=timeout_s), FixedLimiter(max_in_flight)
