"""Fixtures of the tests of tasks."""

import pytest
from comparing import CALLS

from evalflows.analysis.pairwise import ratings


@pytest.fixture(autouse=True)
def quick_ratings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few resamples, and no calls counted yet."""
    monkeypatch.setattr(ratings, "RESAMPLES", 20)
    CALLS.clear()
