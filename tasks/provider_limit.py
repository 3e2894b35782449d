"""A limit over all processes and runs: Prefect's, taken once a chunk and lent to the limiter of the connection."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from llm import loop
from llm.caller import Endpoint
from llm.limiter import Limiter
from specs.connection import ConnectionSpec, EndpointConnection
from specs.errors import InputError

SHARES = 4
"""A chunk takes one of so many parts of a limit, so that several chunks, and several runs, go on side by side."""
LEASE_S = 60.0
"""A process that dies gives its places back after so long."""


@contextmanager
def within_provider_limits(endpoints: Iterable[Endpoint], items: int, chunks: int) -> Iterator[None]:
    """Hold places of the limits that the endpoints name, while the block calls them; as many as fit `items` calls."""
    limited = {name: endpoint for endpoint in endpoints if (name := limit_name(endpoint.connection))}
    with ExitStack() as held:
        for name in sorted(limited):  # in one order everywhere, so that no two chunks wait for each other
            endpoint = limited[name]
            share = max(1, limit_size(name) // min(SHARES, max(1, chunks)))
            places = max(1, min(share, items, endpoint.connection.max_in_flight))
            held.enter_context(concurrency(name, occupy=places, strict=True, lease_duration=LEASE_S))
            held.enter_context(_lent(endpoint.limiter, places))
        yield


def limit_name(connection: ConnectionSpec) -> str | None:
    return connection.provider_limit if isinstance(connection, EndpointConnection) else None


def limit_size(name: str) -> int:
    """How many places a limit has. Raises InputError where Prefect knows none of that name."""
    with get_client(sync_client=True) as client:
        try:
            return int(client.read_global_concurrency_limit_by_name(name).limit)
        except ObjectNotFound as error:
            remedy = f"`prefect gcl create {name} --limit 20` makes one"
            raise InputError(
                f"provider_limit {name!r}: Prefect has no such global concurrency limit; {remedy}"
            ) from error


@contextmanager
def _lent(limiter: Limiter, places: int) -> Iterator[None]:
    loop.call(limiter.lend, places)
    try:
        yield
    finally:
        loop.run(limiter.give_back(places))
