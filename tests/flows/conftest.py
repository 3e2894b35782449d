"""Fixtures that make runs quick."""

import pytest

from evalflows.llm import attempts, limiter


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries and refused calls wait a hundredth of a second or less."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)
