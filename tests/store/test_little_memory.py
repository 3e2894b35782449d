"""Queries with little memory use the disk; one that cannot is asked again with as much as DuckDB takes by itself."""

import pytest

from evalflows.store import database
from evalflows.store.database import shared
from evalflows.store.store import Store

MANY = 2_000_000
LIMIT = "select current_setting('memory_limit')"


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LITTLE", "64MB")


def test_groups_go_to_the_disk_and_for_a_list_which_cannot_the_limit_is_lifted(store: Store) -> None:
    """Two million keys of twenty characters."""
    groups = f"select hash(x)::varchar as k, count(*) as n from range({MANY}) t(x) group by k"
    before = store.query(LIMIT)
    with shared.little_memory():
        assert store.query(f"select count(*), max(n) from ({groups})") == [(MANY, 1)]
        assert store.query(LIMIT) == [("61.0 MiB",)], "the limit was not lifted for it"
        assert store.query(f"select len(list(x)) from range({5 * MANY}) t(x)") == [(5 * MANY,)]
        assert store.query(LIMIT) != [("61.0 MiB",)]
    assert store.query(LIMIT) == before
