"""Keep Prefect's log out of pytest's output."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Prefect's log out of pytest's captured log; its warnings still go to stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("prefect"), "propagate", False)
        yield
