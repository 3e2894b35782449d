"""Every test has a store and a spool of its own; those that run flows share one Prefect server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect_server import prefect_server


@pytest.fixture(autouse=True)
def store_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of this test's store, which `Store()` and `connect()` use."""
    root = tmp_path / "store"
    monkeypatch.setenv("EVALFLOWS_STORE", str(root))
    monkeypatch.setenv("EVALFLOWS_SPOOL", str(tmp_path / "spool"))
    return root


@pytest.fixture(scope="session")
def prefect_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server that lasts as long as the tests; tests that use it share a worker."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as environment:
        yield environment


@pytest.fixture
def prefect_api(prefect_environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Flows of this process run on that server."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    # Logs are sent from a thread that would go on trying for a minute after the server has ended.
    url = prefect_environment["PREFECT_API_URL"]
    with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield prefect_environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, all that need the server run in one, so that there is one server."""
    for item in items:
        if {"prefect_environment", "prefect_api"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.xdist_group("prefect"))
