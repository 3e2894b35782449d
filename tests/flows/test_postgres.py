"""A Prefect server on PostgreSQL instead of SQLite: the same rows."""

from pathlib import Path

import pytest
from endpoint import Endpoint, serving
from interrupted_runs import ITEMS, PER_ITEM, finish, rows_of, start, write_spec
from prefect_server import end_server, environment_of, start_server


@pytest.mark.slow
def test_an_experiment_has_the_same_rows(
    tmp_path: Path, prefect_environment: dict[str, str], postgres_url: str
) -> None:
    home = tmp_path / "prefect"
    home.mkdir()
    database = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
    environment = environment_of(home) | {"PREFECT_API_DATABASE_CONNECTION_URL": database}
    server = start_server(home, environment)
    try:
        with serving(Endpoint()) as endpoint:
            spec = str(write_spec(tmp_path, endpoint.base_url))
            finish(start(tmp_path, environment, tmp_path / "postgres", "run", spec))
            finish(start(tmp_path, prefect_environment, tmp_path / "sqlite", "run", spec))
            assert endpoint.calls == 2 * ITEMS * PER_ITEM
    finally:
        end_server(server)
        print((home / "server.log").read_text()[-5000:])
    assert not (home / "prefect.db").exists(), "the server used no other database"
    assert rows_of(tmp_path / "postgres") == rows_of(tmp_path / "sqlite")
    assert len(rows_of(tmp_path / "postgres")) == 2 * ITEMS
