"""Run SQL of others in a process of its own, which is ended if a query takes too long, too much memory, or is given up.

DuckDB cannot interrupt a single call of a function, such as `repeat('a', 4000000000)`, and its memory limit does not
count what such a call allocates. A process can be ended at any time, and nothing is lost, since it only reads.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from typing import Any

from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import pa
from evalflows.store.database import peak_memory_bytes
from evalflows.store.layout import StoredFile
from evalflows.store.sql import select_from
from evalflows.store.stop import Stop, StoppedError
from evalflows.store.store import Store

POLL_S = 0.02
"""How often the watch looks at a query's process, and at whether its result is still wanted."""

START_S = 60.0
"""How long a process may take to start on a busy machine."""

RowsOf = Callable[[str], list[tuple[Any, ...]]]
"""Returns the rows of a query."""

_READY, _ROWS, _BAD_INPUT, _DAMAGED, _ENDED = b"+", b"R", b"I", b"S", b"X"
"""The first byte of a message: the process has started, rows as an Arrow stream, the message of an InputError or of
a StorageError, or of an InputError after which the process ends itself."""


_LEFT_OUT = b"evalflows.left_out"
"""The key of the damaged files that a query has left out, in the metadata of its rows: a JSON list of paths."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may take."""

    seconds: float = 30.0
    memory_bytes: int = 1 << 30
    rows: int = 10_000
    result_bytes: int = 32 << 20


OF_COMMANDS = QueryLimits(rows=10_000_000, result_bytes=1 << 30)
"""Limits of a command, which may select as many traces as its memory holds."""


class QueryProcesses:
    """Processes for the queries of others on one store. Each runs one query at a time and is kept for the next."""

    def __init__(self, root: str, limits: QueryLimits | None = None, *, most: int = 2, with_final: bool = True) -> None:
        self._with_final = with_final
        self._store, self._limits = Store(root), limits or QueryLimits()
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._is_closed = False

    def rows(self, sql: str, stop: Stop | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of one query, as `select` does."""
        return self.select(sql, stop)[1]

    def select(self, sql: str, stop: Stop | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of the columns and the rows of one query that only reads.

        Rows of damaged files are left out, as in queries of this process, which knows of them from then on. Raise
        InputError for any other statement, for SQL that DuckDB rejects, and beyond a limit; StorageError for a file
        that cannot be read; StoppedError once `stop` is set, which ends the process.
        """
        if not self._places.acquire(timeout=self._limits.seconds):
            raise InputError("sql: too many queries at once; try again later")
        worker: _Worker | None = None
        try:
            worker = self._take()
            request = {"root": self._store.layout.root, "sql": sql, "with_final": self._with_final}
            answer = worker.answer(request, self._limits, stop or Stop())
            if answer[:1] != _ENDED:
                self._give_back(worker)
                worker = None
        finally:
            if worker is not None:
                worker.end()
            self._places.release()
        table = _read(answer)
        self._note_left_out(table)
        columns = [column.to_pylist() for column in table.columns]
        return table.column_names, [*zip(*columns, strict=True)]

    def _note_left_out(self, table: pa.Table) -> None:
        """Verify the files that were left out here too, so that all that shows damage names them."""
        known = {damage.file.path for damage in self._store.left_out()}
        if unknown := {*json.loads((table.schema.metadata or {}).get(_LEFT_OUT, b"[]"))} - known:
            self._store.mend(tables={file.table for path in unknown if (file := StoredFile.at(path))})

    def close(self) -> None:
        """End all idle processes. Those that run a query end with it."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                if (worker := self._idle.pop()).is_alive:
                    return worker
                worker.end()
        return _Worker()

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            if not self._is_closed and worker.is_alive:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """One process, seen from the one that asks it."""

    def __init__(self) -> None:
        self._has_started = False
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evalflows.store.query_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the one that asks
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def answer(self, request: dict[str, Any], limits: QueryLimits, stop: Stop) -> bytes:
        """Return the message of the process about a query. Raise InputError if there is none in time."""
        try:
            if not self._has_started:
                self._message(START_S, limits, stop)
                self._has_started = True
            self._connection.send_bytes(json.dumps({**request, "limits": asdict(limits)}).encode())
            return self._message(limits.seconds + 5.0, limits, stop)  # the process ends itself before
        except (EOFError, OSError) as error:
            raise InputError("sql: the process of the query ended; simplify the query") from error

    def _message(self, seconds: float, limits: QueryLimits, stop: Stop) -> bytes:
        deadline = time.monotonic() + seconds
        while not self._connection.poll(POLL_S):
            if stop.is_set():
                raise StoppedError("the query was abandoned")
            if time.monotonic() > deadline:
                raise InputError(_too_long(limits))
        return bytes(self._connection.recv_bytes(2 * limits.result_bytes))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


def _read(answer: bytes) -> pa.Table:
    kind, content = answer[:1], answer[1:]
    if kind in (_BAD_INPUT, _ENDED):
        raise InputError(content.decode())
    if kind == _DAMAGED:
        raise StorageError(content.decode())
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()


def _too_long(limits: QueryLimits) -> str:
    return f"sql: the query was stopped after {limits.seconds:g} s; simplify it"


def serve(connection: Connection) -> None:
    """Answer queries, one after another, until the other end is closed. Ends the process beyond a limit."""
    parent = os.getppid()
    with suppress(EOFError, OSError):
        connection.send_bytes(_READY)
        while True:
            request = json.loads(connection.recv_bytes())
            limits = QueryLimits(**request["limits"])
            finished = threading.Event()
            watch = threading.Thread(target=_watch, args=(connection, limits, finished, parent), daemon=True)
            watch.start()
            answer = _answer(request, limits)
            finished.set()
            watch.join()
            connection.send_bytes(answer)


def _answer(request: dict[str, Any], limits: QueryLimits) -> bytes:
    try:
        store = Store(request["root"])
        table = _selected(store, request["sql"], limits, with_final=request["with_final"])
    except InputError as error:
        return _BAD_INPUT + str(error).encode()
    except StorageError as error:
        return _DAMAGED + str(error).encode()
    left_out = json.dumps([damage.file.path for damage in store.left_out()])
    table = table.replace_schema_metadata({_LEFT_OUT: left_out})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return _ROWS + bytes(sink.getvalue())


def _selected(store: Store, sql: str, limits: QueryLimits, *, with_final: bool) -> pa.Table:
    relation = select_from(store, sql, limits.seconds, limits.memory_bytes, with_final=with_final)
    table = relation.limit(limits.rows + 1).to_arrow_table()
    if table.num_rows > limits.rows:
        raise InputError(f"sql: got more than {limits.rows:,} rows; add a limit")
    if table.nbytes > limits.result_bytes:
        raise InputError(f"sql: got {table.nbytes / 2**20:.0f} MB, wanted at most {limits.result_bytes >> 20}")
    return table


def _watch(connection: Connection, limits: QueryLimits, finished: threading.Event, parent: int) -> None:
    """End the process when the query takes too much, or when nobody is left who asked."""
    deadline, before = time.monotonic() + limits.seconds + 1.0, peak_memory_bytes()
    while not finished.wait(POLL_S):
        if os.getppid() != parent:
            os._exit(1)
        if time.monotonic() > deadline:
            _end(connection, _too_long(limits))
        if peak_memory_bytes() - before > 1.5 * limits.memory_bytes:
            _end(connection, f"sql: the query was stopped at {limits.memory_bytes >> 20} MB of memory; simplify it")


def _end(connection: Connection, message: str) -> None:
    connection.send_bytes(_ENDED + message.encode())
    os._exit(1)


def _limit_addresses(extra_bytes: int) -> None:
    """Let this process have so much more address space than now, where the system can say and limit that."""
    with suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:  # noqa: PTH123  # of Linux only
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + extra_bytes, resource.RLIM_INFINITY))


if __name__ == "__main__":
    _limit_addresses(8 << 30)
    with Connection(int(sys.argv[1])) as asked:
        serve(asked)
