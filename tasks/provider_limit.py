"""A limit over all processes and runs: Prefect's, taken once a chunk and lent to the limiter of the connection."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress

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
    of_limit: defaultdict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints if items else ():
        if name := limit_name(endpoint.connection):
            of_limit[name].append(endpoint)
    with ExitStack() as held:
        for name in sorted(of_limit):  # in one order everywhere, so that no two chunks wait for each other
            shares = _shares(of_limit[name], limit_size(name), items, chunks)
            places = sum(shares)
            # A lease that was not renewed once is no reason to break off calls that are paid.
            held.enter_context(
                concurrency(name, places, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False)
            )
            for endpoint, share in zip(of_limit[name], shares, strict=True):
                held.enter_context(_lent(endpoint.limiter, share))
        yield


def _shares(endpoints: Sequence[Endpoint], size: int, items: int, chunks: int) -> list[int]:
    """How many places each of the endpoints gets that share a limit: taken together, or two chunks could each hold
    what the other waits for. Raises InputError where there is not one for each."""
    if size < len(endpoints):
        name = limit_name(endpoints[0].connection)
        raise InputError(
            f"provider_limit {name!r}: has {size} places, wanted one for each of {len(endpoints)} connections"
        )
    widest = sum(endpoint.connection.max_in_flight for endpoint in endpoints)
    places = max(len(endpoints), min(size // min(SHARES, max(1, chunks)), items, widest))
    each, more = divmod(places, len(endpoints))
    return [each + (number < more) for number in range(len(endpoints))]


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
    loop.soon(limiter.lend, places)
    try:
        yield
    finally:
        loop.soon(limiter.lend, -places)
        with suppress(CancelledError):  # where the flow was stopped, no call is under way any more
            loop.run(limiter.drained())
