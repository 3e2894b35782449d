"""An application to post to."""

from collections.abc import Iterator

import pytest
from http_application import Application, serving_application

from evalflows.llm import attempts


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """An application on loopback; posts to it are retried without a pause."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    with serving_application() as made:
        yield made
