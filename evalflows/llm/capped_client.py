"""An HTTP client that reads no more of a response than allowed, and follows no redirect; and its connections to one
server: they are opened one after another, and before the answers whose latencies are compared. The time to open one is
no part of an answer's latency.

An endpoint could otherwise answer without end, or with a few kilobytes that unpack to gigabytes, and hand the prompt on
to another host.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Self

import httpx2

from evalflows.specs.errors import CallError
from evalflows.specs.escaping import print_note

MEGABYTE = 1 << 20
ENCODINGS = "gzip, deflate"
"""Encodings whose pieces unpack to about a thousand times their size at most."""

_OF_PACKED = (b"content-encoding", b"content-length", b"transfer-encoding")

OPENING_APART_S = 0.005
"""Seconds between two connections that are opened to one server."""
WARM_UP_S = 5.0
"""Longest time, in seconds, in which the connections of a run are opened before its first answers."""


class CappedClient(httpx2.AsyncClient):
    """A client for the user's application, and the base of that for the OpenAI SDK."""

    max_bytes: int

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Return the whole response. Raise CallError for one that cannot be read, or has over `max_bytes`, unpacked."""
        request.headers["accept-encoding"] = ENCODINGS
        try:
            response = await super().send(request, stream=True, **options)
        except httpx2.RemoteProtocolError as error:
            if _has_too_many_headers(error):
                raise _unreadable("the headers of the response are too large") from None
            raise
        try:
            body = await _body(response, self.max_bytes)
        finally:
            await response.aclose()
        unpacked = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_PACKED]
        whole = httpx2.Response(
            response.status_code, headers=unpacked, content=body, request=request, extensions=response.extensions
        )
        _check_text(whole)
        return whole


def _unreadable(message: str) -> CallError:
    return CallError("bad_answer", message, cost_is_unknown=True)


async def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", *ENCODINGS.split(", ")):
        raise _unreadable(f"the response is encoded as {encoding[:40]!r}, wanted {ENCODINGS} or none")
    parts, size = list[bytes](), 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > max_bytes:
            parts.clear()  # whoever keeps the error keeps this frame
            raise _unreadable(f"the response is larger than {max_bytes / MEGABYTE:g} MB (max_response_mb)")
        parts.append(chunk)
    return b"".join(parts)


def _has_too_many_headers(error: BaseException | None) -> bool:
    """Return whether h11 refused the headers for their size, for which servers would answer 431."""
    while error is not None:
        if getattr(error, "error_status_hint", None) == 431:
            return True
        error = error.__cause__ or error.__context__
    return False


def text_of(response: httpx2.Response) -> str:
    """Return the text of a response: in the charset that it names, else UTF-8, else Latin-1 if it is not UTF-8."""
    if response.charset_encoding is None:
        try:
            return response.content.decode("utf-8")
        except UnicodeDecodeError:
            return response.content.decode("latin-1")
    return response.text


def _check_text(response: httpx2.Response) -> None:
    """Raise CallError if a response names a charset that is none of texts, such as hex. The decoded text is kept."""
    try:
        _ = response.text
    except (AssertionError, LookupError, ValueError):
        named = (response.charset_encoding or "")[:40]
        raise _unreadable(f"the response has the charset {named!r}, wanted one of texts") from None


def redirect(response: httpx2.Response) -> str | None:
    """Return what a redirect says of its destination, without query and password; None for any other response."""
    if not response.has_redirect_location:
        return None
    try:
        to = response.url.join(response.headers["location"]).copy_with(query=None, fragment=None, userinfo=b"")
    except (httpx2.InvalidURL, ValueError):
        return f"HTTP {response.status_code}: redirects to no valid address"
    return f"HTTP {response.status_code}: redirects to {to}, wanted that address in the spec"


class Door:
    """The openings of one client. Use it on one event loop only.

    Connections opened at once may wait for a second at a server with a short queue (5 in Python's http.server), and so
    may the requests that they carry.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._has_said = False  # in this run, that the server closes its connections
        self._run = ""
        self._lock = asyncio.Lock()

    async def pass_through(self) -> None:
        """Wait until the connection before was opened OPENING_APART_S ago."""
        now = time.perf_counter()
        at, self._next = self._next, max(now, self._next) + OPENING_APART_S
        if at > now:
            await asyncio.sleep(at - now)

    async def warm(self, client: httpx2.AsyncClient, url: str, count: int, run: str) -> None:
        """Open so many connections, once for a run, and send OPTIONS over each when all are open.

        An answer shows that the server has accepted the connection. Those that it does not keep, or that could not be
        opened in WARM_UP_S, are opened by the first answers of the run, of all targets alike: they take turns to begin
        a round.
        """
        async with self._lock:
            if run == self._run:
                return
            self._run, self._has_said = run, False
            warming = _Warming(count)
            openings = [Opening(self, warming) for _ in range(count)]
            with suppress(TimeoutError):
                async with asyncio.timeout(WARM_UP_S):
                    await asyncio.gather(*(_ask(client, url, opening, warming) for opening in openings))

    def says_closing(self, url: str) -> None:
        """Say once that a server closes its connections, so that every answer opens one."""
        if not self._has_said:
            self._has_said = True
            print_note(f"{url} closes the connection after each answer; latencies exclude the time to open one")


class _Warming:
    """Holds the requests back until each has opened a connection or ended."""

    def __init__(self, count: int) -> None:
        self._awaited, self._all_open = count, asyncio.Event()

    def arrive(self) -> None:
        self._awaited -= 1
        if self._awaited <= 0:
            self._all_open.set()

    async def all_open(self) -> None:
        await self._all_open.wait()


async def _ask(client: httpx2.AsyncClient, url: str, opening: "Opening", warming: _Warming) -> None:
    with suppress(Exception), opening:  # whatever is wrong with the server, the answers will say
        await client.request("OPTIONS", url, extensions={"trace": opening})
    if not opening.has_opened:
        warming.arrive()


class Opening:
    """What a request does to open its connection, if it needs one. Enter it around the request."""

    def __init__(self, door: Door, warming: _Warming | None = None) -> None:
        self.seconds = 0.0  # that the request waited for its connection
        self.has_opened = self.is_kept = False
        self._since, self._door, self._warming = 0.0, door, warming

    def __enter__(self) -> Self:
        self._token: Token[Opening | None] = _current.set(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)

    async def __call__(self, event: str, info: Any) -> None:
        """Follow a request by the events that httpx emits (its extension `trace`)."""
        step, _, state = event.rpartition(".")
        if step in ("connection.connect_tcp", "connection.connect_unix_socket"):
            await (self.begin() if state == "started" else self.end())
        elif step == "connection.start_tls":
            now = time.perf_counter()
            self._since, self.seconds = now, self.seconds + (0.0 if state == "started" else now - self._since)
        elif event == "http11.receive_response_headers.complete":
            version, _, _, headers, *_ = info["return_value"]
            self.answered(version.decode(), ((name.decode(), value.decode("latin-1")) for name, value in headers))

    async def begin(self) -> None:
        """Note that a connection is about to be opened, and wait for its turn."""
        self._since = time.perf_counter()
        await self._door.pass_through()

    async def end(self) -> None:
        """Note that it is open, or failed to open."""
        self.seconds += time.perf_counter() - self._since
        if self._warming is not None and not self.has_opened:
            self.has_opened = True
            self._warming.arrive()
            await self._warming.all_open()
        self.has_opened = True

    def answered(self, version: str, headers: Iterable[tuple[str, str]]) -> None:
        """Note the version of HTTP and the headers of the answer: they say whether the connection is kept."""
        said = next((value.lower() for name, value in headers if name.lower() == "connection"), "")
        self.is_kept = "keep-alive" in said if version == "HTTP/1.0" else "close" not in said

    def settle(self, url: str) -> None:
        """Say if the server closes the connection that a good answer opened: then every answer opens one."""
        if self.has_opened and not self.is_kept:
            self._door.says_closing(url)


_current: ContextVar[Opening | None] = ContextVar("evalflows_opening", default=None)


def opening() -> Opening | None:
    """Return that of the request that the current task makes, or None."""
    return _current.get()
