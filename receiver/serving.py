"""Serving the receiver: its socket, its signals, and its end, at which all that was accepted is in the store."""

import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from evalflows.receiver.application import Receiver
from evalflows.specs.errors import InputError

GRACE_S = 30
"""Seconds that requests may take to end when the receiver is stopped."""


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
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InputError(f"--port: cannot listen at {host}:{port}: {error.strerror}; wanted a free one") from error
    return listener


def serve(receiver: Receiver, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was accepted. A second signal ends open requests at once.

    `announce` is called when a signal may come. Raise StorageError if what was accepted could not be written to the
    store; it is kept for the next start.
    """
    config = uvicorn.Config(
        receiver.application(),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    with _stopping(server):
        announce()
        server.run(sockets=[listener])
        receiver.stop()


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
