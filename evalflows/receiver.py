"""The HTTP application: reads requests within limits, and answers 200 only when what they carry is on disk."""

import asyncio
import base64
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from evalflows.receiver.answers import accepted, refused
from evalflows.receiver.folding import Folding
from evalflows.receiver.intake import Intake
from evalflows.receiver.journal import Encoding, Entry, Journal, Signal
from evalflows.receiver.request_bodies import COMPRESSIONS, ENCODINGS, TooLargeError, checked, decompressed
from evalflows.serving.origin import refusal
from evalflows.serving.tokens import is_same
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.parquet import Store
from evalflows.store.spool import RECEIVED, spool_folder

Result = TypeVar("Result")

IN_THREAD = 256 << 10
"""Bytes of a body above which it is checked in a thread, so that others are answered meanwhile."""
DRAINED = 8
"""How many times the limit is read of a body that is too large: most clients read no answer before they have sent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the receiver takes at most, in bytes, and in seconds for one body."""

    body: int = 20 << 20  # of one request, compressed and decompressed
    held: int = 256 << 20  # of all requests that are not answered yet
    pending: int = 4 << 30  # of the journal, accepted but not in the store yet
    body_s: float = 60.0


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Receiver:
    """The handlers, and the threads behind them."""

    def __init__(self, store: Store, token: str | None = None, limits: Limits | None = None) -> None:
        self._token, self._limits = token, limits or Limits()
        self._journal = Journal(spool_folder(store) / RECEIVED)
        self._intake, self._folding = Intake(self._journal), Folding(store, self._journal)
        self._held = 0  # bytes of requests that are not answered yet
        self._failed = False  # whether the last write failed
        self._stopping = False

    def application(self) -> Starlette:
        routes = [
            Route("/v1/traces", self._traces, methods=["POST"]),
            Route("/v1/logs", self._logs, methods=["POST"]),
            Route("/api/public/otel/v1/traces", self._traces, methods=["POST"]),  # where langfuse's SDK sends
            Route("/health", self._health),
        ]
        only_ours = Middleware(_OnlyOurs, any_host=self._token is not None)
        return Starlette(routes=routes, middleware=[only_ours], lifespan=self._running)

    @asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        self._intake.start()
        self._folding.start()
        yield

    def begin_to_stop(self) -> None:
        """Answer 503 to the requests that are cancelled from now on."""
        self._stopping = True

    def stop(self) -> None:
        """Write what was accepted to the store. Raise StorageError if that fails; it is kept for the next start."""
        self._intake.stop()
        try:
            self._folding.stop()
        finally:
            self._journal.close()

    async def _traces(self, request: Request) -> Response:
        return await self._answer(request, "traces")

    async def _logs(self, request: Request) -> Response:
        return await self._answer(request, "logs")

    async def _health(self, _: Request) -> Response:
        problem = "the last write failed" if self._failed else self._folding.error or self._is_full()
        state = {"status": problem or "ok", "pending_bytes": self._journal.pending}
        return JSONResponse(state, 503 if self._failed or self._is_full() else 200)

    async def _answer(self, request: Request, signal: Signal) -> Response:
        encoding = _encoding(request)
        held = _Held(self)
        try:
            self._admit(request, encoding)
            return await self._receive(request, signal, encoding or "protobuf", held)
        except RefusedError as refusal:
            return refused(refusal.status, encoding or "json", refusal.reason)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return refused(503, encoding or "json", "the receiver is stopping")
        finally:
            held.release()

    def _admit(self, request: Request, encoding: Encoding | None) -> None:
        """Raise RefusedError for what can be refused by its headers."""
        if self._token is not None and not _is_authorized(request, self._token):
            raise RefusedError(401, "got no or another token, wanted the receiver's: Authorization: Bearer TOKEN")
        if encoding is None:
            raise RefusedError(415, f"got another content type, wanted {' or '.join(ENCODINGS)}")
        if (problem := self._is_full()) is not None:
            raise RefusedError(503, problem)

    def _is_full(self) -> str | None:
        if self._journal.pending > self._limits.pending:
            return "the journal is full"
        return "too many requests at once" if self._held > self._limits.held else None

    async def _receive(self, request: Request, signal: Signal, encoding: Encoding, held: "_Held") -> Response:
        body = await self._body(request, held)
        try:
            if (compression := request.headers.get("content-encoding", "identity").lower()) in COMPRESSIONS:
                body = await _worked(body, lambda: decompressed(body, self._limits.body))
                held.add(len(body))
            elif compression != "identity":
                raise RefusedError(415, f"got another content encoding, wanted {' or '.join(COMPRESSIONS)}, or none")
            entry = Entry(signal, encoding, body)
            result = await _worked(body, lambda: checked(entry))
            if not result.is_empty:
                await self._keep(entry)
        except TooLargeError:
            raise RefusedError(413, self._too_large("after decompression")) from None
        except InputError as error:
            raise RefusedError(400, str(error)) from error
        return accepted(signal, encoding, result.rejected)

    async def _keep(self, entry: Entry) -> None:
        try:
            await self._intake.keep(entry)
            self._failed = False
        except StorageError as error:
            self._failed = True
            raise RefusedError(503, "the receiver cannot write to its disk") from error

    async def _body(self, request: Request, held: "_Held") -> bytes:
        """Return the body as it was sent. Raise RefusedError if it is too large, too slow, or not sent whole."""
        pieces: list[bytes] = []
        size = 0
        with suppress(ClientDisconnect, TimeoutError):
            async with asyncio.timeout(self._limits.body_s):
                async for piece in request.stream():
                    size += len(piece)
                    if size > self._limits.body:
                        pieces.clear()
                        if size > DRAINED * self._limits.body:
                            break
                    else:
                        pieces.append(piece)
                        held.add(len(piece))
                    if self._held > self._limits.held:
                        raise RefusedError(503, "too many requests at once")
                if size > self._limits.body:
                    raise RefusedError(413, self._too_large("as sent"))
                return b"".join(pieces)
        raise RefusedError(408, "the body was not sent whole, or took too long")

    def _too_large(self, how: str) -> str:
        return f"got a body of more than {self._limits.body} bytes {how}, wanted at most that; send smaller batches"


class _OnlyOurs:
    """Middleware: refuses requests for another host name, and those that web pages send."""

    def __init__(self, application: ASGIApp, *, any_host: bool) -> None:
        self._application, self._any_host = application, any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._application
        if scope["type"] == "http":
            request = Request(scope)
            if (problem := refusal(request, any_host=self._any_host, links=False)) is not None:
                answer = refused(403, _encoding(request) or "json", problem)
        await answer(scope, receive, send)


class _Held:
    """The bytes that one request holds, counted among those of all."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._size = receiver, 0

    def add(self, size: int) -> None:
        self._size += size
        self._receiver._held += size

    def release(self) -> None:
        self._receiver._held -= self._size


def _encoding(request: Request) -> Encoding | None:
    """Return the encoding of a request's body; None for another content type."""
    return ENCODINGS.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())


def _is_authorized(request: Request, token: str) -> bool:
    """Whether a request has the token: as a bearer's, or as a password, which is how langfuse sends its secret key."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    given = value.strip()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (Base64Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return is_same(given, token)


async def _worked(body: bytes, work: Callable[[], Result]) -> Result:
    return await run_in_threadpool(work) if len(body) > IN_THREAD else work()
