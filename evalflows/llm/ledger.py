"""The ledger of finished calls, found by a key of everything that determines the answer."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalflows.llm import loop
from evalflows.specs.errors import StorageError
from evalflows.specs.safe_text import print_note
from evalflows.store.parquet import Store
from evalflows.store.records import CallRow, Json, to_json
from evalflows.store.spilled_lines import SpilledRows


def call_key(identity: str, request: Mapping[str, Any], repeat: int, kind: str = "chat") -> str:
    """Return a call's key: its endpoint, its whole request (model, messages, parameters) and its repeat index."""
    return key_of_text(identity, to_json(request), repeat, kind)


def key_of_text(identity: str, request: Json, repeat: int, kind: str = "chat") -> str:
    """Return the key of a call whose request is already JSON text."""
    head = to_json([kind, identity, repeat])
    return hashlib.sha256(f"{head}\n{request}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Index:
    """The reusable calls of a store."""

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # first 64 bits of each, sorted
    payer_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))  # number of each call's payer
    payers: list[str] = field(default_factory=list)


class Ledger:
    """The calls that may be reused: those of all experiments or, with `fresh`, only this experiment's own.

    Use it on one event loop only. Keys are read once, as numbers (12 bytes per call), unless no calls `are_made`.
    Answers are read on first use, all those of the experiment that paid for them at once, and kept on disk, since they
    may be larger than memory.
    """

    def __init__(self, store: Store, experiment_id: str, *, fresh: bool = False, are_made: bool = True) -> None:
        self._store, self._experiment_id, self._fresh = store, experiment_id, fresh
        self._index = self._read_index() if are_made else _Index()
        self._rows = SpilledRows[str, CallRow]()
        self._read: set[str] = set()
        self._reading = asyncio.Lock()
        self.in_flight: dict[str, asyncio.Future[CallRow]] = {}  # by call key

    async def find(self, key: str) -> CallRow | None:
        """Return the reusable finished call with this key, or None."""
        if key not in self._rows:
            for payer in self._may_have_paid(key):
                async with self._reading:
                    await asyncio.to_thread(self._read_from, payer)
                if key in self._rows:
                    break
        return self._rows.get(key)

    def add(self, row: CallRow) -> None:
        """Add a call that has just finished."""
        if row.reusable:
            self._rows[row.call_key] = _lean(row)

    def refresh(self) -> None:
        """Take in the calls that other processes have recorded since. Call it from another thread than the loop's."""
        index = self._read_index()
        loop.call(self._take_in, index)

    def _take_in(self, index: _Index) -> None:
        self._index = index
        self._read.clear()  # what was read is kept; a payer whose calls are needed has more by now

    def _read_index(self) -> _Index:
        query = "select distinct experiment_id from source.calls where reusable"
        own_only, parameters = (" and experiment_id = ?", [self._experiment_id]) if self._fresh else ("", [])
        payers = sorted(payer for (payer,) in self._store.query(query + own_only, parameters))
        columns = self._store.columns(
            f"""select ('0x' || left(call_key, 16))::ubigint as key,
                       coalesce(list_position(?, experiment_id), 0)::integer - 1 as payer
                from source.calls where reusable{own_only} order by key""",
            [payers, *parameters],
        )
        return _Index(np.asarray(columns["key"]), np.asarray(columns["payer"]), payers)

    def _may_have_paid(self, key: str) -> Iterator[str]:
        """Yield the experiments that paid for a call whose key has the same first 64 bits."""
        index = self._index
        if len(index.keys) == 0:
            return
        prefix = np.uint64(int(key[:16], 16))
        low, high = np.searchsorted(index.keys, prefix, "left"), np.searchsorted(index.keys, prefix, "right")
        for number in range(low, high):
            payer = int(index.payer_of[number])
            if payer >= 0:  # negative: an experiment added between the two queries
                yield index.payers[payer]

    def _read_from(self, payer: str) -> None:
        if payer not in self._read:
            self._read.add(payer)
            for row in self._calls_of(payer):
                if row.reusable and row.call_key not in self._rows:
                    self._rows[row.call_key] = _lean(row)

    def _calls_of(self, payer: str) -> Iterator[CallRow]:
        """Yield an experiment's calls; none if its file is damaged and it is another experiment's."""
        try:
            yield from self._store.rows("calls", payer)
        except StorageError as error:
            if payer == self._experiment_id:
                raise
            print_note(f"the calls of {payer} are not reused: {error}")


def _lean(row: CallRow) -> CallRow:
    """Drop a call's request: it is the larger part, and already covered by the key."""
    return replace(row, request="{}")
