"""Queries of others run in a process that ends when they take too much, and the next query finds another."""

import threading
import time
from collections.abc import Iterator

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.query_process import QueryLimits, QueryProcesses
from evalflows.store.stop import Stop, StoppedError
from evalflows.store.store import Store

ENDLESS = "select count(*) from range(1000000000000)"


@pytest.fixture
def queries(store: Store) -> Iterator[QueryProcesses]:
    limits = QueryLimits(seconds=30, memory_bytes=300 << 20, rows=100, result_bytes=1 << 20)
    made = QueryProcesses(store.layout.root, limits)
    yield made
    made.close()


def refused(queries: QueryProcesses, sql: str) -> str:
    with pytest.raises(InputError) as caught:
        queries.rows(sql)
    return str(caught.value)


@pytest.mark.slow
def test_a_query_is_answered_within_its_limits_and_stopped_beyond(queries: QueryProcesses) -> None:
    assert queries.rows("select [1, 2] as a, null as b, 'x' as c from range(2)") == [([1, 2], None, "x")] * 2
    assert queries.rows("select count(*) from traces") == [(0,)]
    assert "more than 100 rows" in refused(queries, "from range(101)")
    assert "wanted at most 1" in refused(queries, "select repeat('a', 100000) from range(90)")
    assert "COPY within a query" in refused(queries, "with x as (copy (select 1) to 'a.csv') from x")
    assert "Out of Memory" in refused(queries, "select list(range) from range(1000000000)")
    (worker,) = queries._idle
    assert "at 300 MB of memory" in refused(queries, "select length(repeat('a', 4000000000))")
    assert not worker.is_alive and queries.rows("select 1") == [(1,)]  # by another process
    asked, stop = time.monotonic(), Stop()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(StoppedError):
        queries.rows(ENDLESS, stop)
    assert time.monotonic() - asked < 10 and not queries._idle


def test_a_query_is_stopped_when_its_time_is_over(store: Store) -> None:
    queries = QueryProcesses(store.layout.root, QueryLimits(seconds=0.5))
    assert "stopped after 0.5 s" in refused(queries, ENDLESS)
    queries.close()


def test_what_is_registered_is_called_once_and_only_within_its_block() -> None:
    stop, calls = Stop(), list[str]()
    with stop.on_stop(lambda: calls.append("before")):
        pass
    with stop.on_stop(lambda: calls.append("a")), stop.on_stop(lambda: calls.append("b")):
        assert not stop.is_set()
        stop.set()
        stop.set()
        assert (stop.is_set(), calls) == (True, ["a", "b"])
    with stop.on_stop(lambda: calls.append("later")):
        assert calls == ["a", "b", "later"]
