"""The spool: finished rows that are not yet in a part, on local disk, one per line.

A part is written when a chunk ends. If the process were killed before, its paid calls would be lost, so each finished
row is first appended here. The part then replaces the spool. A call is noted before it is sent, since it may be paid
even if the process does not live to see the answer.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import json
import os
import secrets
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, get_args, get_type_hints

import orjson

from evalflows.specs.errors import StorageError
from evalflows.specs.escaping import print_note
from evalflows.store.arrow import pa
from evalflows.store.file_systems import storage_errors
from evalflows.store.layout import create_locked, open_left_behind
from evalflows.store.records import CallRow, mended
from evalflows.store.schemas import TABLES, from_columns, to_arrow
from evalflows.store.store import Store

DEFAULT_FOLDER = "data/spool"
RECEIVED = "received"
"""The folder of the receiver's journal, beside those of the owners."""
BATCHES = "batches"
"""The folder of calls that wait for the answers of batches, by run."""
FLUSH_AFTER_S = 0.01
"""Rows that took longer than this, in seconds, are flushed to disk at once; others are cheaper to redo."""
ENDING_S = 60.0
"""Seconds that a process may take to write its parts after it has given up an owner's lease."""
SENT, DROPPED = "sent", "dropped"
"""In the place of a table: the row of a call that is being made, and a call that is kept otherwise."""
RESERVED = 1 << 20
"""Bytes that must be free when a chunk starts."""
IN_MEMORY = 8 << 20
"""Characters of long texts that may wait for the part."""


def spool_folder(store: Store) -> Path:
    """Return EVALFLOWS_SPOOL, else a folder in the store, for resuming from any folder; else data/spool."""
    beside = f"{store.layout.root}/spool" if store.layout.is_local else DEFAULT_FOLDER
    return Path(os.environ.get("EVALFLOWS_SPOOL") or beside).absolute()


class Spool:
    """The rows of one part of an owner. Leaving the block, even by an exception, writes the part.

    The file is locked while the process lives, so `recover` only takes files of dead processes. Entering the block
    writes RESERVED bytes and removes them, so that a full or read-only disk is noticed before the first paid call.
    After a failed write, every further row is refused with the same StorageError, except paid calls, which are kept for
    the part: user code may have caught the error, and what it returned then is not a result.

    If the rows have long texts, the part is written in several files, so that they need not all be in memory.
    """

    def __init__(self, store: Store, owner: str, part: str) -> None:
        self._store, self._owner, self._part = store, owner, part
        self._rows: defaultdict[str, list[object]] = defaultdict(list)
        self._columns: defaultdict[str, list[pa.Table]] = defaultdict(list)
        self._sent: dict[str, CallRow] = {}  # calls that are being made, by id
        self._path = spool_folder(store) / owner / f"{part}.{secrets.token_hex(6)}.jsonl"
        self._lock = threading.Lock()
        self._waiting = 0  # characters of long texts in the rows

    def check(self) -> None:
        """Raise StorageError if an earlier row could not be written: what is paid now could not be kept."""
        if self._store.failure is not None:
            raise self._store.failure

    def add(self, table: str, row: object, *, flush: bool = True) -> None:
        """Add a row to the part; with `flush`, it is on disk when this returns.

        Raise StorageError if this or an earlier row could not be written.
        """
        if self._store.failure is None or table == "calls":
            # list.append is atomic; with a lock, threads of fast evaluators would mostly wait.
            self._rows[table].append(row)
        if isinstance(row, CallRow):
            self._sent.pop(row.call_id, None)
        self.check()
        if flush:
            with self._lock:
                self._write(_line(table, row))
        self._wait(sum(len(getattr(row, name) or "") for name in TABLES[table].texts))

    def note_sent(self, row: CallRow) -> None:
        """Note on disk that a call is sent. The row is kept unless one of the same call is added, or it is dropped.

        Raise StorageError like `add`.
        """
        self.check()
        if row.call_id not in self._sent:
            with self._lock:
                self._sent[row.call_id] = row
                self._write(_line("calls", row, SENT))

    def add_call(self, row: CallRow) -> None:
        """Add the row of a paid call, on disk when this returns. Raise StorageError like `add`."""
        self.add("calls", row)

    def drop_sent(self, row: CallRow) -> None:
        """Forget that a call was sent: its answer is kept in a row of another table."""
        if self._sent.pop(row.call_id, None) is not None:
            with self._lock:
                self._write(_line("calls", row, DROPPED))

    def add_columns(self, table: str, columns: Mapping[str, Sequence[object]]) -> None:
        """Add rows to the part as columns by name; none of them is on disk before the part.

        Raise StorageError if an earlier row could not be written.
        """
        self.check()
        rows = from_columns(table, columns)
        self._columns[table].append(rows)
        self._wait(sum(rows.column(name).nbytes for name in TABLES[table].texts))

    def _wait(self, characters: int) -> None:
        """Count long texts that wait for the part, and write it if they are too many."""
        self._waiting += characters
        if self._waiting > IN_MEMORY:
            with self._lock:
                if self._waiting > IN_MEMORY:  # else another thread has just written them
                    self._write_part()

    def __enter__(self) -> Spool:
        with storage_errors(self._path):
            self._file = create_locked(self._path)
        try:
            self._write(bytes(RESERVED))
            self._file.truncate(0)
        except StorageError:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._sent:  # nobody waits for them any more
                self._rows["calls"] += self._sent.values()
                self._sent.clear()
            try:
                self._write_part()
            except BaseException:
                self._file.close()  # `recover` reads it
                raise
            self._remove()
        if self._store.failure is not None and error is None:
            raise self._store.failure

    def _write_part(self) -> None:
        """Write the rows as a file of the part, and clear the spool. Other threads may add rows meanwhile."""
        self._waiting = 0
        for table in {*self._rows, *self._columns}:
            rows, columns = self._rows[table], self._columns[table]
            n_rows, n_columns = len(rows), len(columns)
            data = pa.concat_tables([to_arrow(table, rows[:n_rows]), *columns[:n_columns]])
            try:
                self._store.append(table, self._owner, self._part, data)
            except StorageError as error:
                self._store.failure = self._store.failure or error
                raise
            del rows[:n_rows], columns[:n_columns]
        self._file.truncate(0)
        for row in [*self._sent.values()]:
            self._write(_line("calls", row, SENT))

    def _write(self, line: bytes) -> None:
        """Write a whole line or nothing. Raise StorageError if that fails."""
        start = self._file.seek(0, os.SEEK_END)
        try:
            with storage_errors(self._path):
                rest = memoryview(line)
                while rest:
                    rest = rest[self._file.write(rest) :]
        except StorageError as error:
            self._store.failure = error
            with suppress(OSError):
                self._file.truncate(start)
            raise

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()
        with suppress(OSError):  # not empty: other parts are in progress
            self._path.parent.rmdir()


def recover(store: Store, owner: str, wait_s: float = 0.0, part: str = "*") -> int:
    """Write the spooled rows of dead processes for an owner, or for one part of it, as parts. Return their number.

    A spool that a process still has open is skipped after `wait_s` seconds: who has the owner's lease waits, since the
    process that had it before may still be ending.

    Lines that are torn, altered or unknown are set aside in `<part>.damaged` beside the spool, and that is printed.
    """
    store.failure = None
    recovered, deadline = 0, time.monotonic() + wait_s
    for path in sorted((spool_folder(store) / owner).glob(f"{part}.*.jsonl")):
        if (file := open_left_behind(path, deadline)) is None:
            continue
        with file:
            rows, unreadable = _read(file)
            for table, recovered_rows in rows.items():
                store.append(table, owner, path.name.partition(".")[0], recovered_rows)
                recovered += len(recovered_rows)
            if unreadable:
                aside = path.with_suffix(".damaged")
                aside.write_bytes(b"".join(unreadable))
                n_lines = "1 line" if len(unreadable) == 1 else f"{len(unreadable)} lines"
                print_note(f"set aside {n_lines} of the spool that cannot be read, in {aside}")
            path.unlink(missing_ok=True)
    return recovered


def _read(file: IO[bytes]) -> tuple[dict[str, list[object]], list[bytes]]:
    """Return the rows of a spool by table, and the lines that cannot be read."""
    rows: defaultdict[str, list[object]] = defaultdict(list)
    sent: dict[str, CallRow] = {}
    unreadable = []
    for line in file:
        try:
            table, row = _row(line)
            if table == SENT:
                sent[row.call_id] = row
                continue
            if table in ("calls", DROPPED):
                sent.pop(row.call_id, None)
            if table != DROPPED:
                rows[table].append(row)
        except (ValueError, KeyError, TypeError, AttributeError):
            if line.strip(b"\0"):  # else killed while the spool was tried
                unreadable.append(line)
    if sent:
        rows["calls"] += sent.values()
    return rows, unreadable


def _line(table: str, row: object, entry: str | None = None) -> bytes:
    """Return the line of a row, as an `entry` other than one of its table."""
    values = {name: getattr(row, name) for name in _names(table)}
    try:
        text = orjson.dumps({"table": entry or table, "row": values}, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a lone surrogate
        values = {name: mended(value) if isinstance(value, str) else value for name, value in values.items()}
        text = orjson.dumps({"table": entry or table, "row": values}, option=orjson.OPT_APPEND_NEWLINE)
    return b"%08x " % zlib.crc32(text) + text


def _row(line: bytes) -> tuple[str, Any]:
    """Return the table of a line, or the entry in its place, and its row.

    Raise ValueError, KeyError or TypeError if it is not as written.
    """
    check, _, text = line.partition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        raise ValueError("got another checksum than that of the line")
    entry = json.loads(text)
    record = CallRow if entry["table"] in (SENT, DROPPED) else TABLES[entry["table"]].record
    times = {k: datetime.fromisoformat(v) for k, v in entry["row"].items() if v and k in _time_fields(record)}
    return entry["table"], record(**entry["row"] | times)


@cache
def _names(table: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(TABLES[table].record))


@cache
def _time_fields(record: type) -> frozenset[str]:
    hints = get_type_hints(record)
    return frozenset(name for name, hint in hints.items() if hint is datetime or datetime in get_args(hint))
