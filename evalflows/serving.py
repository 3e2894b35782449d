"""Serve a Starlette application at an address of this machine, until a signal ends it cleanly; who sends a request,
and the token that it must have.

A page of another site that the same browser shows can send requests here, also under a name that it points to this
machine (DNS rebinding). Browsers say in headers which page sends a request, and no script can change these; programs
send no such headers.
"""

import hmac
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from evalflows.specs.errors import InputError


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Return a socket that listens at an address.

    Raise InputError, in one line, if the port is in use, and for an address that others reach, without a token.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"--host: got {host!r}, wanted an address of this machine ({error})") from error
    if not has_token and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(f"--host: got {host!r}, which other machines reach, wanted a --token with it, or 127.0.0.1")
    # With its protocol: otherwise asyncio would not send each part of an answer at once.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
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

    Args:
        application: What answers. Its lifespan, if it has one, begins before the first request.
        listener: A listening socket.
        announce: Called when a signal may come.
        grace_s: Seconds that open requests may take when the server is stopped. They are cancelled then.
        stop: Called in the event loop when a signal has come, before open requests are waited for.
        finish: Called after the last request; signals do not end the process meanwhile.
    """
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_s,
        lifespan="on",
    )
    server = _Server(config, stop)
    with _stopping(server):
        announce()
        server.run(sockets=[listener])
        if finish is not None:
            finish()


class _Server(uvicorn.Server):
    """A server that says when it begins to stop."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._stop = stop

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


OURS = ("same-origin", "none")
"""Values of Sec-Fetch-Site for requests of our own pages, and of the person: an address typed, or a bookmark."""


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
    """Whether a browser opens a page in a tab of its own because of another site's page, such as by a link there."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.getlist("sec-fetch-site") in (["cross-site"], ["same-site"])
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def is_local(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_OTHER_SITE = "got a request of another site's page, wanted one of this server's own pages or of a program"


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
    """Whether two texts are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(_bytes(given), _bytes(wanted))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
