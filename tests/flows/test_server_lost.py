"""A Prefect server that dies while targets are called: one line, nothing lost; back in time, it harms nothing."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint import Endpoint, serving
from interrupted_runs import IN_FLIGHT, ITEMS, PER_ITEM, finish, output_of, rows_of, start, when_called, write_spec
from prefect_server import end_server, environment_of, start_server

from evalflows.store import connect


class Server:
    """A server that can be killed and started again, on the same port and with the same database."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, environment_of(folder)
        self.process = start_server(folder, self.environment)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = start_server(self.folder, self.environment)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    home = tmp_path / "prefect"
    home.mkdir()
    one = Server(home)
    yield one
    if one.process.poll() is None:
        end_server(one.process)


@pytest.mark.soak
def test_a_run_whose_server_dies_ends_with_a_line_and_is_resumed(tmp_path: Path, server: Server) -> None:
    with serving(Endpoint(latency_s=3.0)) as endpoint:
        run = start(tmp_path, server.environment, tmp_path / "s", "run", str(write_spec(tmp_path, endpoint.base_url)))
        when_called(run, endpoint, 2 * IN_FLIGHT)
        server.kill()
        killed_at = time.monotonic()
        said = output_of(run, within=120)
        print(f"ended after {time.monotonic() - killed_at:.1f} s, at {endpoint.calls} calls")
        assert endpoint.calls < ITEMS * PER_ITEM
        with connect(tmp_path / "s") as catalog:
            (identity,) = catalog.execute("select experiment_id from experiments").fetchone() or ("",)
        assert run.returncode == 4
        assert said.startswith("metric"), "what was done so far is shown"
        assert said.endswith(
            f"evalflows: the Prefect server at {server.environment['PREFECT_API_URL']} no longer answers; finished "
            f"calls are kept, and `evalflows resume {identity}` continues\n"
        )
        endpoint.latency_s = 0.0
        server.restart()
        finish(start(tmp_path, server.environment, tmp_path / "s", "resume", identity))
    rows = rows_of(tmp_path / "s")
    assert len(rows) == len({(row[0], row[2]) for row in rows}) == ITEMS * 2
    assert endpoint.repeated() <= IN_FLIGHT
    assert endpoint.calls - endpoint.repeated() == ITEMS * PER_ITEM


@pytest.mark.soak
def test_a_server_that_is_back_in_time_harms_nothing(tmp_path: Path, server: Server) -> None:
    with serving(Endpoint(latency_s=0.5)) as endpoint:
        run = start(tmp_path, server.environment, tmp_path / "s", "run", str(write_spec(tmp_path, endpoint.base_url)))
        when_called(run, endpoint, 2 * IN_FLIGHT)
        server.kill()
        server.restart()
        finish(run)
        assert (endpoint.calls, endpoint.repeated()) == (ITEMS * PER_ITEM, 0)
    assert len(rows_of(tmp_path / "s")) == ITEMS * 2
