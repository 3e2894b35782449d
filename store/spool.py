"""The spool: finished rows that are not yet in a part, on local disk, one per line.

A part is written when a chunk ends. If the process were killed before, its paid calls would be lost, so each finished
row is first appended here. The part then replaces the spool.
"""

import fcntl
import json
import os
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, get_args, get_type_hints

import orjson

from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES

DEFAULT_FOLDER = "data/spool"


def spool_folder(store: Store) -> Path:
    """Return EVALFLOWS_SPOOL, else a folder in the store, for resuming from any folder; else data/spool."""
    beside = f"{store.layout.root}/spool" if store.layout.is_local else DEFAULT_FOLDER
    return Path(os.environ.get("EVALFLOWS_SPOOL") or beside).absolute()


class Spool:
    """The rows of one part of an owner. Leaving the block, even by an exception, writes the part.

    The file is locked while the process lives, so `recover` only takes files of dead processes.
    """

    def __init__(self, store: Store, owner: str, part: str) -> None:
        self._store, self._owner, self._part = store, owner, part
        self._rows: dict[str, list[object]] = {}
        self._path = spool_folder(store) / owner / f"{part}.{secrets.token_hex(6)}.jsonl"
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, table: str, row: object, *, flush: bool = True) -> None:
        """Add a row to the part; with `flush`, it is on disk when this returns."""
        # list.append is atomic; with a lock, threads of fast evaluators would mostly wait.
        self._rows.setdefault(table, []).append(row)
        if flush:
            with self._lock:
                self._open().write(_line(table, row))

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for table, rows in self._rows.items():
                self._store.append(table, self._owner, self._part, rows)
            if self._file is not None:
                self._path.unlink()
                self._file.close()
                with suppress(OSError):  # not empty: other parts are in progress
                    self._path.parent.rmdir()

    def _open(self) -> IO[bytes]:
        while self._file is None:
            with suppress(FileNotFoundError, FileExistsError):  # another part removed the folder: create it again
                self._path.parent.mkdir(parents=True, exist_ok=True)
                file = self._path.open("ab", buffering=0)
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._path.exists():  # else `recover` took the empty file before it was locked
                    self._file = file
                else:
                    file.close()
        return self._file


def recover(store: Store, owner: str) -> int:
    """Write the spooled rows of dead processes for an owner as parts. Return the number of rows."""
    recovered = 0
    for path in sorted((spool_folder(store) / owner).glob("*.jsonl")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its process is alive
            rows: defaultdict[str, list[object]] = defaultdict(list)
            for table, row in _read(file):
                rows[table].append(row)
                recovered += 1
            for table, recovered_rows in rows.items():
                store.append(table, owner, path.name.partition(".")[0], recovered_rows)
            path.unlink(missing_ok=True)
    return recovered


def _line(table: str, row: object) -> bytes:
    values = {name: getattr(row, name) for name in _names(table)}
    return orjson.dumps({"table": table, "row": values}, option=orjson.OPT_APPEND_NEWLINE)


def _read(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    for line in file:
        if not line.endswith(b"\n"):
            return  # cut off during a write
        entry = json.loads(line)
        record = TABLES[entry["table"]].record
        times = {k: datetime.fromisoformat(v) for k, v in entry["row"].items() if v and k in _time_fields(record)}
        yield entry["table"], record(**entry["row"] | times)


@cache
def _names(table: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(TABLES[table].record))


@cache
def _time_fields(record: type) -> frozenset[str]:
    hints = get_type_hints(record)
    return frozenset(name for name, hint in hints.items() if hint is datetime or datetime in get_args(hint))
