"""Fixtures of the tests of tasks."""

import pytest
from comparing import CALLS


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """No calls are counted yet."""
    CALLS.clear()
