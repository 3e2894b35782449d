"""Stores in a folder and in memory, their views, and rows of which tests set only the relevant fields."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import duckdb
import pytest
from full_store import Filler
from open_store import OWNER

from evalflows.store import file_systems
from evalflows.store.sql import connect
from evalflows.store.store import Store

_numbers = count()


@pytest.fixture
def memory_root() -> Iterator[str]:
    """An empty root in obstore's memory, in place of an object store; a new one, as a process remembers sound files."""
    root = f"memory://evals{next(_numbers)}"
    yield root
    for key in [key for key in file_systems._opened if root in key]:
        file_systems._opened.pop(key).mirror.remove()


@pytest.fixture(params=["folder", "memory"])
def any_store(request: pytest.FixtureRequest) -> Store:
    """An empty store, once in a folder and once in an object store."""
    if request.param == "folder":
        return request.getfixturevalue("store")  # type: ignore[no-any-return]
    return Store(request.getfixturevalue("memory_root"))


@pytest.fixture(scope="module")
def catalog(
    tmp_path_factory: pytest.TempPathFactory, store_at: Callable[..., Any]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The views of an empty store, to read from."""
    with store_at(tmp_path_factory.mktemp("empty")) as store, connect(store.layout.root) as connection:
        yield connection


@pytest.fixture
def filler(store: Store, make: Callable[..., Any]) -> Filler:
    return Filler(store, make)


@pytest.fixture
def output(make: Callable[..., Any]) -> Callable[..., Any]:
    """`output(run_id, **fields)`: an answer of the experiment."""
    return lambda run_id, **fields: make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)


@pytest.fixture
def score(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda score_id, **fields: make("judgements", **{"judgement_id": score_id, "experiment_id": OWNER} | fields)
