"""The ledger: a finished call is found again under a key of everything that decides its answer."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from store.parquet import Store
from store.records import CallRow, Json, to_json


def call_key(identity: str, request: Mapping[str, Any], repeat: int, kind: str = "chat") -> str:
    """The key of a call: where it goes, its whole request (model, messages, parameters), its repeat index."""
    return key_of_text(identity, to_json(request), repeat, kind)


def key_of_text(identity: str, request: Json, repeat: int, kind: str = "chat") -> str:
    """The same of a request that is JSON text already."""
    head = to_json([kind, identity, repeat])
    return hashlib.sha256(f"{head}\n{request}".encode()).hexdigest()


class Ledger:
    """The calls that may be used again: those of all experiments; where a fresh answer is wanted, one's own only.

    Used on one event loop. Which keys there are is read once, as numbers (12 bytes a call); the answers themselves
    come when one is first asked for, with all others of the experiment that paid for it.
    """

    def __init__(self, store: Store, experiment_id: str, *, fresh: bool = False) -> None:
        self._store, self._experiment_id, self._fresh = store, experiment_id, fresh
        self._keys, self._payer_of, self._payers = self._index()
        self._rows: dict[str, CallRow] = {}
        self._read: set[str] = set()
        self._reading = asyncio.Lock()
        self.under_way: dict[str, asyncio.Future[CallRow]] = {}  # calls that somebody waits for

    async def find(self, key: str) -> CallRow | None:
        """The finished call under a key, if there is one that may be used again."""
        if key not in self._rows:
            for payer in self._may_have_paid(key):
                async with self._reading:
                    await asyncio.to_thread(self._read_from, payer)
                if key in self._rows:
                    break
        return self._rows.get(key)

    def add(self, row: CallRow) -> None:
        """A call that has just finished."""
        if row.reusable:
            self._rows[row.call_key] = _lean(row)

    def _index(self) -> tuple[Any, Any, list[str]]:
        """The first 64 bits of every key, in order; the number of who paid for each; and who that is."""
        owners = "select distinct experiment_id from source.calls where reusable"
        mine, given = (" and experiment_id = ?", [self._experiment_id]) if self._fresh else ("", [])
        payers = sorted(payer for (payer,) in self._store.query(owners + mine, given))
        found = self._store.columns(
            f"""select ('0x' || left(call_key, 16))::ubigint as key,
                       coalesce(list_position(?, experiment_id), 0)::integer - 1 as payer
                from source.calls where reusable{mine} order by key""",
            [payers, *given],
        )
        return np.asarray(found["key"]), np.asarray(found["payer"]), payers

    def _may_have_paid(self, key: str) -> Iterator[str]:
        """Who has a call under a key that begins like this one."""
        if len(self._keys) == 0:
            return
        begins = np.uint64(int(key[:16], 16))
        low, high = np.searchsorted(self._keys, begins, "left"), np.searchsorted(self._keys, begins, "right")
        for place in range(low, high):
            number = int(self._payer_of[place])
            if number >= 0:  # below for who came between the two readings
                yield self._payers[number]

    def _read_from(self, payer: str) -> None:
        if payer not in self._read:
            for row in self._store.read("calls", payer):
                if row.reusable:
                    self._rows.setdefault(row.call_key, _lean(row))
            self._read.add(payer)


def _lean(row: CallRow) -> CallRow:
    """A call without its request, which is the larger half and is in its key already."""
    return replace(row, request="{}")
