"""A store to export, and a PostgreSQL server to export it to."""

import os
from collections.abc import Iterator

import exported
import pytest
from postgres_server import binaries, postgres_server

from evalflows.store.parquet import Store


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with rows in almost every view, some of them hostile; tests only read it."""
    return exported.fill(tmp_path_factory.mktemp("exports") / "store")


@pytest.fixture(autouse=True)
def new_views_are_copies() -> None:
    """Views are made one after the other: an export writes them in that order, which copies do not keep."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server. Skips where none is installed, fails where one has to be."""
    programs = binaries()
    if programs is None:
        give_up = pytest.fail if os.environ.get("EVALFLOWS_REQUIRE_POSTGRES") == "1" else pytest.skip
        give_up("no PostgreSQL server here: apt-get install postgresql")
    assert programs is not None
    with postgres_server(programs) as url:
        yield url
