"""The ledger: a finished call is found again under a key of everything that decides its answer."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from store.parquet import Store
from store.records import CallRow, to_json


def call_key(identity: str, request: Mapping[str, Any], repeat: int, kind: str = "chat") -> str:
    """The key of a call: where it goes, its whole request (model, messages, parameters), its repeat index."""
    return hashlib.sha256(to_json([kind, identity, request, repeat]).encode()).hexdigest()


class Ledger:
    """The calls that an experiment may use again: its own, and other experiments' unless a fresh answer is wanted.

    Used on one event loop. Which keys there are is read once; the answers themselves come when one is first asked
    for, with all others of the experiment that paid for it.
    """

    def __init__(self, store: Store, experiment_id: str, *, fresh: bool = False) -> None:
        self._store, self._experiment_id, self._fresh = store, experiment_id, fresh
        self._payers = dict(store.query(*self._keys()))
        self._rows: dict[str, CallRow] = {}
        self._read: set[str] = set()
        self._reading = asyncio.Lock()

    async def find(self, key: str) -> CallRow | None:
        """The finished call under a key, if there is one that may be used again."""
        if key not in self._rows and key in self._payers:
            async with self._reading:
                await asyncio.to_thread(self._read_from, self._payers[key])
        return self._rows.get(key)

    def add(self, row: CallRow) -> None:
        """A call that has just finished."""
        if row.reusable:
            self._rows[row.call_key] = _lean(row)

    def _keys(self) -> tuple[str, list[object]]:
        query = "select call_key, experiment_id from source.calls where reusable"
        return (f"{query} and experiment_id = ?", [self._experiment_id]) if self._fresh else (query, [])

    def _read_from(self, payer: str) -> None:
        if payer not in self._read:
            for row in self._store.read("calls", payer):
                if row.reusable:
                    self._rows.setdefault(row.call_key, _lean(row))
            self._read.add(payer)


def _lean(row: CallRow) -> CallRow:
    """A call without its request, which is the larger half and is in its key already."""
    return replace(row, request="{}")
