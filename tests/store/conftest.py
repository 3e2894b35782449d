"""Stores in a folder and in memory, and rows that need only what a test is about."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from store.parquet import Store
from store.records import Json
from store.schemas import TABLES


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, so none needs to wait until the disk has what was written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store to copy, which is quicker than to make one."""
    root = tmp_path_factory.mktemp("empty") / "store"
    Store(root)
    return root


@pytest.fixture
def store(store_root: Path, empty_root: Path) -> Store:
    """An empty store in a folder."""
    shutil.copytree(empty_root, store_root)
    return Store(store_root)


@pytest.fixture
def memory_root() -> Iterator[str]:
    """An empty place in fsspec's memory, which stands for an object store."""
    _forget_memory()
    yield "memory://evals"
    _forget_memory()


@pytest.fixture(params=["folder", "memory"])
def any_store(request: pytest.FixtureRequest) -> Store:
    """An empty store, once in a folder and once in an object store."""
    if request.param == "folder":
        return request.getfixturevalue("store")  # type: ignore[no-any-return]
    return Store(request.getfixturevalue("memory_root"))


@pytest.fixture(scope="session")
def make() -> Callable[..., Any]:
    """`make(table, **fields)`: a row of a table, whose other fields are their defaults, or something plain."""
    return _make


def _make(table: str, **given: Any) -> Any:
    record = TABLES[table].record
    hints = get_type_hints(record, include_extras=True)
    needed = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    return record(**{name: _plain(name, hints[name]) for name in needed} | given)


def _plain(name: str, hint: Any) -> object:
    if hint == Json:
        return "{}"
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is list:
        return []
    if hint is str:
        return f"a {name}"
    return datetime(2026, 1, 1, tzinfo=UTC) if hint is datetime else hint()


def _forget_memory() -> None:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
