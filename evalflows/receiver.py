"""Receives traces and logs over HTTP, in OpenTelemetry's protocol: reads requests within limits, answers 200 only
when what they carry is on disk, and writes it as rows of the store about once a second.

A receiver appends to a file of its own, which it keeps locked. The file is taken from time to time, a new one begins,
and the taken one is removed once its rows are written. Files of dead receivers are taken by any other.
"""

import asyncio
import base64
import json
import math
import os
import queue
import secrets
import struct
import threading
import time
import zlib
from binascii import Error as Base64Error
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from evalflows.serving import is_same, refusal
from evalflows.specs.errors import InputError, StorageError, describe
from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass
from evalflows.store.file_systems import storage_errors
from evalflows.store.layout import create_locked, open_left_behind
from evalflows.store.observations import Compaction, day_of, seal_past_days, write_observations
from evalflows.store.records import now
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import Store
from evalflows.telemetry.costs import with_listed_costs
from evalflows.telemetry.feedback import Telemetry
from evalflows.telemetry.ingestion import Ingested, answer_to_scores, batch_of_scores
from evalflows.telemetry.otlp import (
    MOST_ELEMENTS,
    TooManyElementsError,
    check_elements_of_json,
    check_elements_of_protobuf,
    invalid_spans,
    parse_json,
    rows_of_logs,
    rows_of_traces,
)

Signal = Literal["traces", "logs", "langfuse"]
Encoding = Literal["protobuf", "json"]

_HEAD = struct.Struct("<BII")  # what it is, the body's length, and the checksum of both and of the body
_CHECKED = struct.Struct("<BI")
_KINDS: tuple[tuple[Signal, Encoding], ...] = (
    ("traces", "protobuf"),
    ("traces", "json"),
    ("logs", "protobuf"),
    ("logs", "json"),
    ("langfuse", "json"),
)

CONTENT_TYPES: Mapping[Encoding, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}
RETRY_AFTER_S = 2
"""Seconds after which a client that was sent away for now should try again."""
MOST_NAMED = 3
"""Rejected spans that an answer names."""
GRPC_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3, 503: 14}
"""The code of gRPC that the body of an error states."""

AT_ONCE = 16 << 20
"""Bytes that are written at once, unless one entry has more."""

ENCODINGS: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
COMPRESSIONS = ("gzip", "deflate")
STEP = 1 << 20
"""Bytes that are decompressed in one step."""
MESSAGES: dict[str, Any] = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
GROUPS = {"traces": "resource_spans", "logs": "resource_logs"}

EVERY_S = 1.0
"""Seconds from one fold to the next."""
RETRY_S = 5.0
"""Seconds until the next fold after one that failed."""
RECOVER_S = 30.0
"""Seconds from one look for files of dead receivers to the next."""
COMPACT_S = 5.0
"""Seconds from one look for parts to merge to the next."""
SEAL_S = 3600.0
"""Seconds from one look for past days to seal to the next, and after midnight until the first: some spans are late."""
ROWS_AT_ONCE, BYTES_AT_ONCE = 20_000, 16 << 20
"""What is in memory at once: rows, or bytes of the entries that they come from."""
ALONE = 1 << 20
"""The same bytes of a file with which a process was killed, unless one entry has more, to find the entry. Those up to
this size take too little memory to have killed it, and are never set aside: kill -9 hits them, too, since each process
begins with what the last one has left."""
ENDED = 3
"""Processes that were killed while they wrote the same large entry alone, after which it is set aside."""

Result = TypeVar("Result")

IN_THREAD = 256 << 10
"""Bytes of a body above which it is checked in a thread, so that others are answered meanwhile."""
CHECKED_AT_ONCE = 2
"""Bodies that are checked in threads: while it is checked, one may take some 200 MB."""
DRAINED = 8
"""How many times the limit is read of a body that is too large: most clients read no answer before they have sent."""

_TOO_MANY = (
    f"got more than {MOST_ELEMENTS} spans, log records, events, links, attributes and values, wanted at most that; "
    "send smaller batches"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The body of one request, decompressed."""

    signal: Signal
    encoding: Encoding
    body: bytes

    def to_bytes(self) -> bytes:
        kind = _KINDS.index((self.signal, self.encoding))
        return _HEAD.pack(kind, len(self.body), _checksum(kind, self.body)) + self.body


_ATTEMPT = struct.Struct("<qI")


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a process is writing of a file. Its note stays if the process is killed, such as for want of memory."""

    start: int = -1  # of the entries; -1 for any of the file
    ended: int = 0  # processes before it that were killed while they wrote these entries alone


@dataclass(frozen=True, slots=True)
class Taken:
    """A file of the journal that nobody appends to any more. Whoever has it keeps it locked."""

    path: Path
    size: int
    _lock: IO[bytes]

    def attempt(self) -> Attempt | None:
        """Return what a process was writing when it was killed; None if none was."""
        try:
            return Attempt(*_ATTEMPT.unpack(self._note.read_bytes()))
        except FileNotFoundError:
            return None
        except struct.error:
            return Attempt()

    def note(self, attempt: Attempt | None) -> None:
        """Note what is written from now on; None for nothing."""
        with storage_errors(self._note):
            if attempt is None:
                self._note.unlink(missing_ok=True)
            else:
                with _private(self._note, os.O_TRUNC) as file:
                    file.write(_ATTEMPT.pack(attempt.start, attempt.ended))

    @property
    def _note(self) -> Path:
        return self.path.with_suffix(".attempt")

    def entries(self) -> Iterator[Entry]:
        """Yield the entries. What cannot be read is set aside, except a torn end, which was answered to nobody."""
        with storage_errors(self.path), self.path.open("rb") as file:
            while head := file.read(_HEAD.size):
                start = file.tell() - len(head)
                entry = _entry(head, file)
                if entry is None:
                    self._set_aside(file, start)
                    return
                yield entry

    def set_aside(self, content: bytes, why: str = "that cannot be read") -> None:
        """Keep in `<name>.damaged` what cannot be stored, and print that."""
        path = self.path.with_suffix(".damaged")
        with storage_errors(path), _private(path, os.O_APPEND) as file:
            file.write(content)
            os.fsync(file.fileno())
        print_note(f"set aside {len(content)} bytes of the receiver's journal {why}, in {path}")

    def remove(self) -> None:
        """Remove the file: all its rows are in the store."""
        self.note(None)
        with storage_errors(self.path):
            self.path.unlink(missing_ok=True)
        self._lock.close()

    def release(self) -> None:
        """Unlock the file, so that another receiver takes it."""
        self._lock.close()

    def _set_aside(self, file: IO[bytes], start: int) -> None:
        file.seek(start)
        head = file.read(_HEAD.size)
        is_torn = len(head) < _HEAD.size or _HEAD.unpack(head)[1] > self.size - start - _HEAD.size
        file.seek(start)
        rest = file.read()
        if not is_torn and rest.strip(b"\0"):
            self.set_aside(rest)


def _private(path: Path, flags: int) -> IO[bytes]:
    """Open a file for writing that only its owner may read, also if it was made with other permissions."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


class Journal:
    """The journal of one receiver. One thread writes, another takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._path = folder
        self._full: deque[Taken] = deque()
        self._size = 0  # of the current file
        self._pending = 0  # bytes in files that were not removed yet

    @property
    def pending(self) -> int:
        """The bytes that are not in the store yet."""
        return self._pending

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries, all or none. They are on disk when this returns. Raise StorageError if that fails."""
        content = b"".join(entry.to_bytes() for entry in entries)
        with self._lock:
            try:
                self._append(content)
            except StorageError:
                self._begin_anew()  # after a failed sync, nothing says what is on disk behind the last entry
                raise

    def take(self) -> Taken | None:
        """Return the oldest file with entries, locked; None if there is none."""
        with self._lock:
            if not self._full:
                self._begin_anew()
            return self._full.popleft() if self._full else None

    def give_back(self, taken: Taken) -> None:
        """Return a file whose rows could not be written, to be taken again later."""
        taken.note(None)
        with self._lock:
            self._full.appendleft(taken)

    def remove(self, taken: Taken) -> None:
        """Remove a file whose rows are in the store."""
        taken.remove()
        with self._lock:
            self._pending -= taken.size

    def recover(self) -> None:
        """Take the files of dead receivers, to be returned by `take`."""
        for path in sorted(self._folder.glob("*.journal")):
            if (file := open_left_behind(path)) is not None:
                taken = Taken(path, os.fstat(file.fileno()).st_size, file)
                with self._lock:
                    self._full.append(taken)
                    self._pending += taken.size

    def close(self) -> None:
        """Unlock the files, which the next receiver recovers. One without entries is removed."""
        with self._lock:
            self._begin_anew()
            for taken in self._full:
                taken.release()
            self._full.clear()
            with suppress(OSError):  # not empty
                self._folder.rmdir()

    def _append(self, content: bytes) -> None:
        if self._file is None:
            self._create()
        assert self._file is not None
        with storage_errors(self._path):
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._size)
                raise
        self._size += len(content)
        self._pending += len(content)

    def _create(self) -> None:
        self._path = self._folder / f"{secrets.token_hex(8)}.journal"
        with storage_errors(self._path):
            self._file = create_locked(self._path)
            self._size = 0
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _begin_anew(self) -> None:
        """End the current file; one without entries is removed."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if self._size:
            self._full.append(Taken(self._path, self._size, file))
        else:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            file.close()


def _entry(head: bytes, file: IO[bytes]) -> Entry | None:
    """Read the entry behind a head; None if it is torn or altered."""
    if len(head) < _HEAD.size:
        return None
    kind, length, check = _HEAD.unpack(head)
    body = file.read(length)
    if len(body) < length or kind >= len(_KINDS) or check != _checksum(kind, body):
        return None
    signal, encoding = _KINDS[kind]
    return Entry(signal, encoding, body)


def _checksum(kind: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, len(body))))


def accepted(signal: Signal, encoding: Encoding, rejected: Sequence[str]) -> Response:
    """Return the answer to a request whose valid spans or log records are on disk; the others are counted and named."""
    message: Any
    if signal == "traces":
        of_traces = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=_named(rejected))
        message = ExportTraceServiceResponse(partial_success=of_traces if rejected else None)
    else:
        of_logs = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=_named(rejected))
        message = ExportLogsServiceResponse(partial_success=of_logs if rejected else None)
    return _response(message, encoding, 200, {})


def refused(status: int, encoding: Encoding, reason: str) -> Response:
    """Return the answer to a request of which nothing was kept."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    if status == 401:
        headers = {"www-authenticate": "Bearer"}
    return _response(Status(code=GRPC_CODES[status], message=reason), encoding, status, headers)


def _named(rejected: Sequence[str]) -> str:
    more = len(rejected) - MOST_NAMED
    return "; ".join(rejected[:MOST_NAMED]) + (f" (and {more} more)" if more > 0 else "")


def _response(message: Any, encoding: Encoding, status: int, headers: Mapping[str, str]) -> Response:
    # no ids in it, so protobuf's JSON is right
    body = message.SerializeToString() if encoding == "protobuf" else MessageToJson(message, indent=None)
    return Response(body, status, headers, media_type=CONTENT_TYPES[encoding])


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An entry, and who waits until it is on disk."""

    entry: Entry
    answered: asyncio.Future[None]


class Intake:
    """A thread that writes waiting entries to the journal. While one write is synced, the next entries gather."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="evalflows-journal", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread, for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end the thread, if it was started."""
        if self._loop is not None:
            self._queue.put(None)
            self._thread.join()

    async def keep(self, entry: Entry) -> None:
        """Return when the entry is on disk. Raise StorageError if it cannot be written."""
        waiting = _Waiting(entry, asyncio.get_running_loop().create_future())
        self._queue.put(waiting)
        await waiting.answered

    def _run(self) -> None:
        assert self._loop is not None
        is_open = True
        while is_open:
            batch, is_open = self._next()
            if batch:
                error = self._write(batch)
                with suppress(RuntimeError):  # the loop has ended, and nobody waits
                    self._loop.call_soon_threadsafe(_answer, batch, error)

    def _next(self) -> tuple[list[_Waiting], bool]:
        """Return the entries that wait, at least one, and whether more may come."""
        batch: list[_Waiting] = []
        waiting = self._queue.get()
        while waiting is not None:
            batch.append(waiting)
            if self._queue.empty() or sum(len(held.entry.body) for held in batch) >= AT_ONCE:
                return batch, True
            waiting = self._queue.get()
        return batch, False

    def _write(self, batch: Sequence[_Waiting]) -> StorageError | None:
        try:
            self._journal.write([waiting.entry for waiting in batch])
        except StorageError as error:
            return error
        return None


def _answer(batch: Sequence[_Waiting], error: StorageError | None) -> None:
    for waiting in batch:
        if waiting.answered.done():  # the client has gone
            continue
        if error is None:
            waiting.answered.set_result(None)
        else:
            waiting.answered.set_exception(error)


class TooLargeError(Exception):
    """A body above the limit."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a valid request has: whether anything is to be kept, and a line per invalid span or log record."""

    is_empty: bool
    rejected: list[str]
    answer: Mapping[str, Any] | None = None  # to Langfuse's SDK


def decompress(body: bytes, limit: int) -> bytes:
    """Return a body that was compressed by gzip or zlib.

    Raise TooLargeError above `limit` bytes, before more is in memory, and InputError for what is not whole.
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    found = bytearray()
    while not reader.eof:
        try:
            step = reader.decompress(body, STEP)
        except zlib.error as error:
            raise InputError(f"body: cannot be decompressed ({error})") from error
        found += step
        body = reader.unconsumed_tail
        if len(found) > limit:
            raise TooLargeError
        if not step and not body and not reader.eof:
            raise InputError("body: its compressed data end too early")
    if reader.unused_data:
        raise InputError(f"body: {len(reader.unused_data)} bytes follow its compressed data")
    return bytes(found)


def check_entry(entry: Entry) -> Checked:
    """Check an entry: what is accepted must become rows later. Raise InputError, in one line, if it is unreadable."""
    try:
        if entry.signal == "langfuse":
            found = _ingested(entry)
            parsed = found.telemetry
            return Checked(not parsed.n_rows, parsed.rejected, found.answer)
        message = _message(entry)
        if entry.signal == "traces" and entry.encoding == "protobuf":  # the many: their rows are made later
            n_spans, rejected = invalid_spans(message)
            return Checked(n_spans == len(rejected), rejected)
        parsed = _rows(entry, message)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        wanted = "a batch of Langfuse" if entry.signal == "langfuse" else "OTLP"
        raise InputError(f"body: not {wanted}: {describe(error)}") from error
    return Checked(not parsed.n_rows, parsed.rejected)


def telemetry_of(entry: Entry) -> Telemetry:
    """Return the rows of an entry."""
    if entry.signal == "langfuse":
        return _ingested(entry).telemetry
    return _rows(entry, _message(entry))


def _ingested(entry: Entry) -> Ingested:
    check_elements_of_json(entry.body)
    return Ingested(json.loads(entry.body))


def _message(entry: Entry) -> Any:
    """Parse an entry. Raise TooManyElementsError before that if it has too many elements."""
    if entry.encoding == "protobuf":
        message_type = MESSAGES[entry.signal]
        check_elements_of_protobuf(entry.body, message_type.DESCRIPTOR)
        try:
            return message_type.FromString(entry.body)
        except DecodeError as error:
            raise InputError(f"body: not OTLP in protobuf: {error}") from error
    check_elements_of_json(entry.body)
    message = parse_json(entry.body)
    if not hasattr(message, GROUPS[entry.signal]) and any(getattr(message, name, ()) for name in GROUPS.values()):
        raise InputError(f"body: got another signal, wanted {entry.signal}")
    return message


def _rows(entry: Entry, message: Any) -> Telemetry:
    return rows_of_traces(message) if entry.signal == "traces" else rows_of_logs(message)


@dataclass(slots=True)
class _Batch:
    """The rows of some entries."""

    telemetry: Telemetry = field(default_factory=Telemetry)
    size: int = 0  # of the entries, and of what rows repeat

    def add(self, more: Telemetry) -> None:
        self.telemetry.observations.extend(more.observations)
        self.telemetry.scores.extend(more.scores)
        self.telemetry.labels.extend(more.labels)
        self.size += sum(len(row.resource or "") + len(row.scope or "") for row in more.observations)

    def write(self, store: Store) -> None:
        telemetry = self.telemetry
        rows = with_listed_costs(telemetry.observations)
        write_observations(store, rows, scores=telemetry.scores, labels=telemetry.labels)


class Folding:
    """The thread, and whether its last fold failed."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self._compaction = Compaction(store)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evalflows-folding", daemon=True)
        self._due: dict[Callable[[], None], float] = {}  # when to do again what is not done at each fold
        self.error: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Fold the rest and end the thread. Raise StorageError if the rest could not be written; it is kept."""
        self._stopping.set()
        if self._thread.ident is None:  # stopped before it was started
            self.start()
        self._thread.join()
        if self.error is not None and self._journal.pending:
            raise StorageError(f"{self.error}; what was accepted is kept for the next start")

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._attempt()
            pause = EVERY_S if self.error is None else RETRY_S
            self._stopping.wait(began + pause - time.monotonic())
        self._attempt()
        self._compaction.finish()

    def _attempt(self) -> None:
        """Fold and compact once. Note an error once, until a fold succeeds again."""
        try:
            self._every(RECOVER_S, self._journal.recover)
            self._fold()
            self._every(COMPACT_S, self._compaction.step)
            self._every(SEAL_S, self._seal)
            self.error = None
        except Exception as error:  # the journal keeps what was accepted, and the next fold may succeed
            text = str(error) if isinstance(error, StorageError) else describe(error)
            if self.error is None:
                print_note(f"cannot write to the store, so the journal grows: {text}")
            self.error = text

    def _every(self, period_s: float, work: Callable[[], None]) -> None:
        if time.monotonic() >= self._due.get(work, -math.inf):
            work()
            self._due[work] = time.monotonic() + period_s

    def _seal(self) -> None:
        seal_past_days(self._store, day_of(now() - timedelta(seconds=SEAL_S)))

    def _fold(self) -> None:
        while (taken := self._journal.take()) is not None:
            try:
                for batch in _batches(taken):
                    batch.write(self._store)
                self._journal.remove(taken)
            except BaseException:
                self._journal.give_back(taken)
                raise


def _batches(taken: Taken) -> Iterator[_Batch]:
    """Yield the rows of a file. Set aside entries that cannot be read, and those with which processes were killed."""
    before = taken.attempt()
    most = BYTES_AT_ONCE if before is None else ALONE
    taken.note(Attempt())
    batch, at, ended = _Batch(), 0, 0
    for entry in taken.entries():
        if batch.telemetry.n_rows >= ROWS_AT_ONCE or (batch.size and batch.size + len(entry.body) > most):
            yield batch
            batch = _Batch()
        if before is not None and not batch.size:
            ended = before.ended + 1 if before.start == at else 0
            taken.note(Attempt(at, ended))
        if ended < ENDED or len(entry.body) <= ALONE:
            _add(batch, entry, taken)
        else:
            taken.set_aside(entry.to_bytes(), f"with which {ENDED} processes were killed")
        batch.size += len(entry.body)
        at += _HEAD.size + len(entry.body)
    yield batch


def _add(batch: _Batch, entry: Entry, taken: Taken) -> None:
    try:
        batch.add(telemetry_of(entry))
    except Exception:  # it was checked before it was accepted, but perhaps by another version
        taken.set_aside(entry.to_bytes())


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
        self._at_once = CapacityLimiter(CHECKED_AT_ONCE)
        self._held = 0  # bytes of requests that are not answered yet
        self._failed = False  # whether the last write failed
        self._stopping = False

    def application(self) -> Starlette:
        routes = [
            Route("/v1/traces", partial(self._answer, signal="traces"), methods=["POST"]),
            Route("/v1/logs", partial(self._answer, signal="logs"), methods=["POST"]),
            # where langfuse's SDK sends, and its scores
            Route("/api/public/otel/v1/traces", partial(self._answer, signal="traces"), methods=["POST"]),
            Route("/api/public/ingestion", partial(self._answer, signal="langfuse"), methods=["POST"]),
            Route("/api/public/scores", partial(self._answer, signal="langfuse", are_scores=True), methods=["POST"]),
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

    async def _health(self, _: Request) -> Response:
        problem = "the last write failed" if self._failed else self._folding.error or self._is_full()
        state = {"status": problem or "ok", "pending_bytes": self._journal.pending}
        return JSONResponse(state, 503 if self._failed or self._is_full() else 200)

    async def _answer(self, request: Request, signal: Signal, *, are_scores: bool = False) -> Response:
        encoding = _encoding(request)
        held = _Held(self)
        try:
            self._admit(request, encoding)
            if signal == "langfuse" and encoding != "json":
                raise RefusedError(415, "got another content type, wanted application/json")
            return await self._receive(request, signal, encoding or "protobuf", held, are_scores=are_scores)
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
            raise RefusedError(401, "got no token or a wrong one, wanted the receiver's: Authorization: Bearer TOKEN")
        if encoding is None:
            raise RefusedError(415, f"got another content type, wanted {' or '.join(ENCODINGS)}")
        if (problem := self._is_full()) is not None:
            raise RefusedError(503, problem)

    def _is_full(self) -> str | None:
        if self._journal.pending > self._limits.pending:
            return "the journal is full"
        return "too many requests at once" if self._held > self._limits.held else None

    async def _receive(
        self, request: Request, signal: Signal, encoding: Encoding, held: "_Held", *, are_scores: bool
    ) -> Response:
        body, is_list = await self._body(request, held), False
        try:
            if (compression := request.headers.get("content-encoding", "identity").lower()) in COMPRESSIONS:
                body = await _worked(body, lambda: decompress(body, self._limits.body), self._at_once)
                held.add(len(body))
            elif compression != "identity":
                raise RefusedError(415, f"got another content encoding, wanted {' or '.join(COMPRESSIONS)}, or none")
            if are_scores:
                is_list, body = body.lstrip().startswith(b"["), batch_of_scores(body)
            entry = Entry(signal, encoding, body)
            result = await _worked(body, lambda: check_entry(entry), self._at_once)
            if not result.is_empty:
                await self._keep(entry)
        except TooLargeError:
            raise RefusedError(413, self._too_large("after decompression")) from None
        except TooManyElementsError:
            raise RefusedError(413, _TOO_MANY) from None
        except InputError as error:
            raise RefusedError(400, str(error)) from error
        if result.answer is None:
            return accepted(signal, encoding, result.rejected)
        if not are_scores:
            return JSONResponse(result.answer, 207)
        return JSONResponse(*answer_to_scores(result.answer, is_list=is_list))

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
    """Return whether a request has the token: as a bearer's, or as a password, which is how langfuse sends its secret
    key."""
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


async def _worked(body: bytes, work: Callable[[], Result], at_once: CapacityLimiter) -> Result:
    return await to_thread.run_sync(work, limiter=at_once) if len(body) > IN_THREAD else work()
