"""Every test has a store and a spool of its own; those that run flows share one Prefect server."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of this test's store, which `Store()` and `connect()` use."""
    root = tmp_path / "store"
    monkeypatch.setenv("EVALFLOWS_STORE", str(root))
    monkeypatch.setenv("EVALFLOWS_SPOOL", str(tmp_path / "spool"))
    return root
