"""Rows of one experiment."""

from collections.abc import Callable
from typing import Any

import pytest
from scored_run import Run

from evalflows.store.parquet import Store


@pytest.fixture
def run(store: Store, make: Callable[..., Any]) -> Run:
    return Run(store, make)
