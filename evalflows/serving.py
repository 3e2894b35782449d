"""Serve a Starlette application at an address of this machine, until a signal ends it cleanly; who sends a request, and
the token that it must have."""

# A page of another site that the same browser shows can send requests here, also under a name that it points to this
# machine (DNS rebinding). Browsers say in headers which page sends a request, and no script can change these; programs
# send no such headers.
#
# uvicorn has no time limit for a request to arrive, and its limit of connections counts those that have sent nothing
# without ending them. So connections have limits of their own here.

import asyncio
import hmac
import ipaddress
import logging
import re
import resource
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from evalflows.specs.errors import InputError

BACKLOG = 2048
"""Connections that the system holds until they are accepted."""

HEAD_S, REQUEST_S, IDLE_S, STALLED_S = 10, 90, 10, 60
"""Seconds until a request's headers, and then its body, must have arrived; that a connection may be idle between
requests; and that a client may read nothing of its answer."""
MOST_CONNECTIONS = 1000
"""Connections at once, or half of the files that the process may open if that is less. One client may have half."""
ACCEPTED_AT_ONCE = 100
"""Connections that are accepted before the first of them is looked at. Each is an open file."""

WHOLE = 3
"""How far a request has arrived of which nothing is waited for."""

OURS = ("same-origin", "none")
"""Values of Sec-Fetch-Site for requests of our own pages, and of the person: an address typed, or a bookmark."""

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?")
_OTHER_SITE = "got a request from another site's page, wanted one from this server's own pages or from a program"


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Return a socket that listens at an address.

    Raise InputError, in one line, if the port is in use, and for an address that others reach, without a token.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"--host: got {host!r}, wanted an address of this machine ({error})") from error
    if not has_token and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(f"--host: got {host!r}, which other machines can reach, wanted a --token, or 127.0.0.1")
    # With its protocol: otherwise asyncio would not send each part of an answer at once.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(f"--port: cannot listen at {host}:{port}: {error.strerror}; wanted a free one") from error
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL at which a listening socket is reached by the name it was given."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def serve(
    application: Starlette,
    listener: socket.socket,
    announce: Callable[[], None],
    *,
    grace_s: int,
    stop: Callable[[], None] | None = None,
    finish: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish. A second signal ends open requests at once.

    Errors of connections are logged, each kind once a minute, with how many there were.

    Args:
        application: What answers. Its lifespan, if it has one, begins before the first request.
        listener: A listening socket.
        announce: Called when a signal may come.
        grace_s: Seconds that open requests may take when the server is stopped. They are cancelled then.
        stop: Called in the event loop when a signal has come, before open requests are waited for.
        finish: Called after the last request; signals do not end the process meanwhile.
    """
    server = server_of(application, grace_s, stop)
    with _stopping(server):
        announce()
        server.run(sockets=[listener])
        if finish is not None:
            finish()


def serve_beside(application: Starlette) -> str:
    """Serve on a free port of this machine, in a thread that ends with the process. Return the address."""
    listener = listen("127.0.0.1", 0, has_token=False)
    server = server_of(application, grace_s=1)
    threading.Thread(target=server.run, args=([listener],), name="evalflows-served", daemon=True).start()
    return url_of("127.0.0.1", listener)


def server_of(application: Starlette, grace_s: int, stop: Callable[[], None] | None = None) -> uvicorn.Server:
    """Return the server that `serve` runs."""
    config = uvicorn.Config(
        application,
        http=_Connection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=grace_s,
        lifespan="on",
        backlog=ACCEPTED_AT_ONCE,
    )
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_REPEATS)
    return _Server(config, stop)


class _Connection(H11Protocol):
    """A connection whose requests must arrive in time.

    One more than allowed takes the place of one that keeps the server waiting, of the same client if that has too many.
    So those who send nothing, or half of a request, keep nobody out, even of their own address, which may be a proxy's.
    """

    client_network: str
    waiting_since: float
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client_network = _network(self.client[0] if self.client else "")
        self.waiting_since = self.loop.time()
        self._within(HEAD_S, self._too_late)
        everyone: list[_Connection] = [*self.connections]  # type: ignore[list-item]
        same = [connection for connection in everyone if connection.client_network == self.client_network]
        most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        if len(same) > most // 2:
            _end_one_of(same, f"{self.client_network} has {most // 2} connections")
        elif len(everyone) > most:
            _end_one_of(everyone, f"there are {most} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.conn.their_state
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.SEND_BODY and before is h11.IDLE:
            self._within(REQUEST_S, self._too_late)
        elif state is h11.IDLE and self._deadline is None:
            self._within(HEAD_S, self._too_late)
        elif state not in (h11.IDLE, h11.SEND_BODY):
            self._within(None)

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._within(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._within(None)

    @property
    def in_request(self) -> int:
        """How far a request has arrived: 0 if nothing, 1 if a part of its headers, 2 if these have whole, or WHOLE."""
        if self.conn.their_state is h11.IDLE:
            return 1 if self.conn.trailing_data[0] else 0
        return 2 if self.conn.their_state is h11.SEND_BODY else WHOLE

    def _within(self, seconds: float | None, late: Callable[[], None] | None = None) -> None:
        """Call `late` after that time, in place of what was to be called before; None for nothing."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None or late is None else self.loop.call_later(seconds, late)

    def _too_late(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:  # browsers open connections in advance
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def _network(client: str) -> str:
    """Return a client's address: of IPv6, its network of 64 bits, all of which one client may have."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _end_one_of(connections: list[_Connection], problem: str) -> None:
    """End the oldest of the connections that wait for the same part of a request, of which there are most.

    So a flood of one kind ends itself, and not who has just connected or has long been sending. If all others are being
    answered, end the newest.
    """
    counts = Counter(connection.in_request for connection in connections)
    counts[WHOLE] = 0
    waiting = min(connections, key=lambda connection: (-counts[connection.in_request], connection.waiting_since))
    logging.getLogger("uvicorn.error").warning("too many connections: %s; those that send nothing are ended", problem)
    waiting.connections.discard(waiting)
    waiting.transport.abort()


class _Repeats(logging.Filter):
    """Lets one message of each kind through in a minute, with the number of those that it has kept back."""

    EVERY_S = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[object, ...], tuple[float, int]] = {}  # when one was shown, and how many were not

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg).partition("\n")[0], *_place(record)
        shown_at, kept_back = self._kinds.get(kind, (-self.EVERY_S, 0))
        if (now := time.monotonic()) - shown_at < self.EVERY_S:
            self._kinds[kind] = shown_at, kept_back + 1
            return False
        self._kinds[kind] = now, 0
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} (and {kept_back} more since the last one)", ()
        return True


_REPEATS = _Repeats()


def _place(record: logging.LogRecord) -> tuple[object, ...]:
    """Return where the exception of a record was raised, if it has one."""
    if not record.exc_info or (trace := record.exc_info[2]) is None:
        return ()
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code, trace.tb_lineno


class _Server(uvicorn.Server):
    """A server that says when it begins to stop."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio accepts as many at once as it lets wait

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._stop is not None:
            self._stop()
        await super().shutdown(sockets)


@contextmanager
def _stopping(server: uvicorn.Server) -> Iterator[None]:
    """Stop the server on a signal, without ending the process: uvicorn raises the signal again when it has stopped."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refusal(request: Request, *, any_host: bool, links: bool) -> str | None:
    """Return why a request must not be answered, whatever its method; None for one that may be.

    Args:
        request: The request. Only its headers are read.
        any_host: Whether it may be for another host name than this machine's. A token protects then.
        links: Whether people may come from pages of other sites by following a link.
    """
    headers = request.headers
    if not any_host and not is_local(headers.get("host", "")):
        return "got another host name, wanted 127.0.0.1 or localhost"
    if any(origin.partition("://")[2] != headers.get("host") for origin in headers.getlist("origin")):
        return _OTHER_SITE
    if all(site in OURS for site in headers.getlist("sec-fetch-site")) or (links and is_followed_link(request)):
        return None
    return _OTHER_SITE


def is_followed_link(request: Request) -> bool:
    """Return whether a browser opens a page in a tab of its own because of another site's page, such as by a link
    there."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.getlist("sec-fetch-site") in (["cross-site"], ["same-site"])
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def is_local(host: str) -> bool:
    """Return whether a Host header names this machine."""
    if (found := _HOST.fullmatch(host)) is None:
        return False
    name = found["name"].strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def usable_token(given: str | None) -> str | None:
    """Return a token as it was given; None for none, and for an empty one.

    Raise InputError, without showing it, for one that clients would send in different ways, or not at all.
    """
    if not given:
        return None
    if not given.isascii() or not given.isprintable() or given != given.strip():
        raise InputError("--token: got other characters, wanted printable ASCII without spaces around it")
    return given


def is_same(given: str, wanted: str) -> bool:
    """Return whether two texts are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(_bytes(given), _bytes(wanted))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
