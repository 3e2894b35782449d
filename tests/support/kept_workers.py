"""Processes for the queries of others, which all tests of one worker share: each takes longer to start than most tests
take."""

import os
from collections import defaultdict
from typing import Any

from evalflows.store import query_process
from evalflows.store.query_process import QueryProcesses

OF_EACH_TEST = frozenset({"COLUMNS", "EVALFLOWS_SPOOL", "EVALFLOWS_STORE", "PYTEST_CURRENT_TEST"})
"""Variables that no such process reads: it is told the root."""

Surroundings = frozenset[tuple[str, str]]


def surroundings() -> Surroundings:
    """What a process inherits that its queries may depend on."""
    return frozenset((name, value) for name, value in os.environ.items() if name not in OF_EACH_TEST)


class KeptWorkers:
    """Processes that nobody uses now, for the next who would start one in the same surroundings."""

    def __init__(self) -> None:
        self._make, self._close = query_process._Worker, QueryProcesses.close
        self._idle = defaultdict[Surroundings, list[Any]](list)

    def take(self) -> Any:
        where = surroundings()
        while idle := self._idle[where]:
            if (worker := idle.pop()).is_alive:
                return worker
            worker.end()
        worker = self._make()
        worker.surroundings = where
        return worker

    def close(self, queries: QueryProcesses) -> None:
        """In place of `QueryProcesses.close`."""
        with queries._lock:
            idle, queries._idle = queries._idle, []
        for worker in idle:
            self._idle[worker.surroundings].append(worker)
        self._close(queries)

    def end(self) -> None:
        for idle in self._idle.values():
            for worker in idle:
                worker.end()
