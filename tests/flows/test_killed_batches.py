"""A run in batches that is killed loses nothing, submits nothing twice, and has the rows of one that was not."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from batch_endpoint import BatchEndpoint, serve_batches
from interrupted_runs import in_process, output_of, rows_of, start, write_spec

from evalflows.llm.batches import runs_with_batches
from evalflows.store import Store, connect

ITEMS = 16
CALLS = "select model, evaluator, response::varchar, cost_usd, status, count(*) from calls group by all order by all"

Moment = tuple[str, int, Literal["lost", "done", "later"], float]
"""A request to the endpoint and its number; whether the endpoint still does what it asks; seconds until the kill."""

OF_A_STAGE: list[tuple[str, Literal["lost", "done", "later"], float]] = [
    ("POST /v1/files", "lost", 0.0),  # before the upload
    ("POST /v1/files", "done", 0.0),
    ("GET /v1/batches?", "done", 0.0),
    ("POST /v1/batches", "lost", 0.0),  # after the upload
    ("POST /v1/batches", "done", 0.0),  # after the batch was created, before its id is known
    ("POST /v1/batches", "later", 0.02),
    ("POST /v1/batches", "later", 0.2),
    ("GET /v1/batches/", "lost", 0.0),  # while it waits
    ("GET /v1/batches/", "done", 0.0),
    ("GET /v1/files", "lost", 0.0),  # while results are fetched
    ("GET /v1/files", "done", 0.0),
    ("DELETE", "done", 0.0),
    ("DELETE", "later", 0.05),  # while answers are read
    ("DELETE", "later", 0.15),
    ("DELETE", "later", 0.4),
]
MOMENTS: list[Moment] = [(what, number, how, after) for number in (1, 2) for what, how, after in OF_A_STAGE]


def batched(folder: Path, base_url: str) -> Path:
    path = write_spec(folder, base_url, ITEMS)
    spec = yaml.safe_load(path.read_text())
    prices = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 2.0}
    spec["connections"]["mock"] |= {"batch": {"poll_s": 0.05}, **prices}
    path.write_text(yaml.safe_dump(spec | {"mode": "batch"}))
    return path


def figures(store: Path) -> list[Any]:
    with connect(store) as catalog:
        return [rows_of(store), catalog.execute(CALLS).fetchall()]


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([MOMENTS[4], MOMENTS[27]], marks=pytest.mark.slow),
        pytest.param(MOMENTS, marks=pytest.mark.soak),
    ],
)
def test_killed_and_resumed(tmp_path: Path, moments: list[Moment]) -> None:
    with serve_batches(BatchEndpoint()) as endpoint:
        spec = batched(tmp_path, endpoint.base_url)
        in_process(tmp_path / "unbroken", "run", str(spec))
        wanted = figures(tmp_path / "unbroken")
        assert endpoint.submitted.total() == 2 * ITEMS
    for number, moment in enumerate(moments):
        folder = tmp_path / str(number)
        folder.mkdir()
        with serve_batches(BatchEndpoint(looks=2)) as endpoint:
            spec = batched(folder, endpoint.base_url)
            process = start(folder, None, folder / "killed", "run", str(spec))
            kill_at(endpoint, moment, process.pid)
            output_of(process)
            assert process.returncode == -signal.SIGKILL, moment
            endpoint.before = lambda _: None
            in_process(folder / "killed", "resume", "killed")
            twice = [asked for asked, times in endpoint.submitted.items() if times > 1]
            assert not twice and endpoint.submitted.total() == 2 * ITEMS and endpoint.direct == 0, moment
        assert figures(folder / "killed") == wanted, moment
        assert not runs_with_batches(Store(folder / "killed"))


def kill_at(endpoint: BatchEndpoint, moment: Moment, pid: int) -> None:
    what, number, how, after = moment
    seen = 0

    def kill() -> None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)

    def before(request: str) -> None:
        nonlocal seen
        if not request.startswith(what):
            return
        seen += 1
        if seen != number:
            return
        if how == "later":
            threading.Thread(target=kill).start()
            return
        kill()
        if how == "lost":
            raise ConnectionAbortedError

    endpoint.before = before
