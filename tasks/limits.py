"""Limits of a run: slots of a Prefect limit across processes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from evalflows.llm import loop
from evalflows.llm.calls import Endpoint
from evalflows.llm.limiter import Limiter
from evalflows.specs.connections import ConnectionSpec, RemoteConnection
from evalflows.specs.errors import InputError

SHARES = 4
"""A chunk takes at most 1/SHARES of a limit, so that several chunks and flow runs can work side by side."""

LEASE_S = 60.0
"""Seconds after which the slots of a dead process are released."""


@contextmanager
def within_provider_limits(endpoints: Iterable[Endpoint], items: int, chunks: int) -> Iterator[None]:
    """Hold slots of the limits that the endpoints name during the block, no more than `items` calls can use."""
    of_limit: defaultdict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints if items else ():
        if name := limit_name(endpoint.connection):
            of_limit[name].append(endpoint)
    with ExitStack() as held:
        for name in sorted(of_limit):  # always in the same order, so that chunks cannot deadlock
            shares = _shares(of_limit[name], limit_size(name), items, chunks)
            slots = sum(shares)
            # A failed lease renewal is no reason to abort calls that are paid.
            held.enter_context(
                concurrency(name, slots, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False)
            )
            for endpoint, share in zip(of_limit[name], shares, strict=True):
                held.enter_context(_lent(endpoint.limiter, share))
        yield


def _shares(endpoints: Sequence[Endpoint], size: int, items: int, chunks: int) -> list[int]:
    """Return how many slots each endpoint of a limit gets.

    They are acquired together, or two chunks could deadlock. Raise InputError if the limit has fewer slots than
    endpoints.
    """
    if size < len(endpoints):
        name = limit_name(endpoints[0].connection)
        raise InputError(
            f"provider_limit {name!r}: has {size} slots, wanted at least one for each of {len(endpoints)} connections"
        )
    widest = sum(endpoint.connection.max_in_flight for endpoint in endpoints)
    slots = max(len(endpoints), min(size // min(SHARES, max(1, chunks)), items, widest))
    share, remainder = divmod(slots, len(endpoints))
    return [share + (number < remainder) for number in range(len(endpoints))]


def limit_name(connection: ConnectionSpec) -> str | None:
    return connection.provider_limit if isinstance(connection, RemoteConnection) else None


def check_limits(connections: Mapping[str, ConnectionSpec]) -> None:
    """Raise InputError if a connection names a limit that Prefect does not have."""
    for connection in connections.values():
        if name := limit_name(connection):
            limit_size(name)


def limit_size(name: str) -> int:
    """Return the number of slots of a limit. Raise InputError if Prefect has no limit of that name."""
    with get_client(sync_client=True) as client:
        try:
            return int(client.read_global_concurrency_limit_by_name(name).limit)
        except ObjectNotFound as error:
            remedy = f"create it with `prefect gcl create {name} --limit 20`"
            raise InputError(
                f"provider_limit {name!r}: Prefect has no such global concurrency limit; {remedy}"
            ) from error


@contextmanager
def _lent(limiter: Limiter, slots: int) -> Iterator[None]:
    loop.soon(limiter.lend, slots)
    try:
        yield
    finally:
        loop.soon(limiter.lend, -slots)
        with suppress(CancelledError):  # if the flow was stopped, no call is in flight
            loop.run(limiter.drain())
