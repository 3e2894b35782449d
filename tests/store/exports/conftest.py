"""A store to export."""

import exported
import pytest

from evalflows.store.store import Store


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with rows in almost every view, some of them hostile; tests only read it."""
    return exported.fill(tmp_path_factory.mktemp("exports") / "store")
