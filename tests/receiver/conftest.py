"""A receiver in this process, asked as over HTTP."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asking import Client
from starlette.testclient import TestClient

from evalflows import receiver as folding
from evalflows.receiver import Limits, Receiver
from evalflows.store.store import Store


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits a second for its rows."""
    monkeypatch.setattr(folding, "EVERY_S", 0.02)
    monkeypatch.setattr(folding, "RETRY_S", 0.02)


@contextmanager
def serving(store: Store, **settings: Any) -> Iterator[Client]:
    receiver = Receiver(store, settings.get("token"), settings.get("limits") or Limits())
    with TestClient(receiver.application(), base_url="http://127.0.0.1:4318") as http:
        yield Client(receiver, http)
        receiver.stop()


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with serving(store) as client:
        yield client


@pytest.fixture
def served(store: Store) -> Callable[..., Any]:
    """`served(token=..., limits=...)`: a receiver with these settings, for a block."""
    return lambda **settings: serving(store, **settings)
