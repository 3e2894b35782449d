"""A store to export."""

import exported
import pytest

from evalflows.store.parquet import Store


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with rows in almost every view, some of them hostile; tests only read it."""
    return exported.fill(tmp_path_factory.mktemp("exports") / "store")


@pytest.fixture(autouse=True)
def new_views_are_copies() -> None:
    """Views are made one after the other: an export writes them in that order, which copies do not keep."""
