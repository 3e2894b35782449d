"""Stores with one person's words: copies of one that is filled once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import personal
import pytest
from store_copies import StoreCopies

from evalflows.store.store import Store


@pytest.fixture(scope="session")
def filled_stores(tmp_path_factory: pytest.TempPathFactory, store_at: Callable[..., Any]) -> dict[str, StoreCopies]:
    """A store of runs, sealed or open, and one of production."""
    fills: dict[str, Callable[[Store], Any]] = {
        "sealed": personal.fill,
        "open": lambda store: personal.fill(store, sealed=False),
        "production": personal.fill_production,
    }
    found = {}
    for name, fill in fills.items():
        with store_at(tmp_path_factory.mktemp(name)) as store:
            fill(store)
            found[name] = StoreCopies(Path(store.layout.root), Path(store.layout.marker).name)
    return found


def _copy(stores: dict[str, StoreCopies], name: str, root: Path) -> Store:
    stores[name].make(str(root))
    return Store(root)


@pytest.fixture
def sealed(filled_stores: dict[str, StoreCopies], store_root: Path) -> Store:
    """Two sealed experiments and their comparison (`personal.fill`)."""
    return _copy(filled_stores, "sealed", store_root)


@pytest.fixture
def unsealed(filled_stores: dict[str, StoreCopies], store_root: Path) -> Store:
    """The same, as they are while they run."""
    return _copy(filled_stores, "open", store_root)


@pytest.fixture
def production(filled_stores: dict[str, StoreCopies], store_root: Path) -> Store:
    """Traces of production, with scores (`personal.fill_production`)."""
    return _copy(filled_stores, "production", store_root)
