"""Two workers of one work pool on one store: runs at the same time, and one whose worker's machine dies."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from endpoint import Endpoint, serving
from interrupted_runs import IN_FLIGHT, ITEMS, PER_ITEM, rows_of, write_spec
from running_up import EVALFLOWS, MARK, ask, marked, prefect_yaml, until

from evalflows.store import connect

pytestmark = pytest.mark.soak


class Pool:
    """A work pool whose workers run in a folder, each one run at a time."""

    def __init__(self, folder: Path, environment: dict[str, str], *deployments: str) -> None:
        self.folder, self.name = folder, f"pool-{uuid.uuid4().hex[:8]}"
        self.environment = os.environ | environment | {"EVALFLOWS_STORE": str(folder / "store")}
        self.environment.pop("EVALFLOWS_SPOOL")
        self.url = environment["PREFECT_API_URL"]
        shutil.copy(judges.__file__, folder)  # a deployment's run may name only code of its folder
        files = [yaml.safe_load(prefect_yaml(name, self.name)) for name in deployments]
        for file, name in zip(files, deployments, strict=True):
            file["deployments"][0]["build"][0]["evalflows.flows.deployments.spec_of"]["file"] = f"{name}.yaml"
        whole = files[0] | {"deployments": [file["deployments"][0] for file in files]}
        (folder / "prefect.yaml").write_text(yaml.safe_dump(whole))
        subprocess.run([EVALFLOWS, "deploy"], cwd=folder, env=self.environment, check=True, capture_output=True)

    @contextmanager
    def worker(self) -> Iterator[str]:
        """Run a worker during the block, as if on a machine of its own. Yields the mark of all its processes."""
        mark = uuid.uuid4().hex
        command = ["worker", "start", "--pool", self.name, "--type", "process", "--limit", "1"]
        with (self.folder / f"worker-{mark}.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *command],
                cwd=self.folder,
                env=self.environment | {MARK: mark, "PREFECT_WORKER_QUERY_SECONDS": "1"},
                stdout=log,
                stderr=log,
            )
        try:
            yield mark
        finally:
            kill(mark)
            process.wait(10)

    def start(self, deployment: str) -> str:
        """Create a run of a deployment, and return its id."""
        found = ask(self.url, "/deployments/filter", deployments={"name": {"any_": [deployment]}})
        return str(ask(self.url, f"/deployments/{found[0]['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"])

    def set_state(self, run: str, **state: str) -> None:
        ask(self.url, f"/flow_runs/{run}/set_state", state=state, force=True)

    def states(self, *runs: str) -> list[str]:
        found = ask(self.url, "/flow_runs/filter", flow_runs={"id": {"any_": [*runs]}})
        return [{run["id"]: run["state_type"] for run in found}[run] for run in runs]

    def completed(self, *runs: str) -> None:
        """Wait until runs have completed."""
        until(lambda: {*self.states(*runs)} <= {"COMPLETED", "FAILED", "CRASHED"}, 120)
        logs = "".join(file.read_text()[-3000:] for file in self.folder.glob("worker-*.txt"))
        assert self.states(*runs) == ["COMPLETED"] * len(runs), logs


def kill(mark: str) -> None:
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def write(folder: Path, endpoint: Endpoint, name: str, **changes: Any) -> None:
    spec = yaml.safe_load(write_spec(folder, endpoint.base_url).read_text())
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec | {"name": name, "use_cache": False} | changes))


def test_runs_of_two_deployments_at_once_and_of_one_group_one_after_the_other(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    one_run = ITEMS * PER_ITEM
    with serving(Endpoint(latency_s=0.1)) as endpoint:
        for name in ("first", "second"):
            write(tmp_path, endpoint, name, run_key=name)
        pool = Pool(tmp_path, prefect_environment, "first", "second")
        with pool.worker(), pool.worker():
            runs = [pool.start(name) for name in ("first", "second")]
            until(lambda: pool.states(*runs) == ["RUNNING", "RUNNING"] and endpoint.peak > IN_FLIGHT, 90)
            pool.completed(*runs)
            assert endpoint.calls == 2 * one_run
            assert endpoint.repeated() == one_run, "each run has asked everything once"
            pool.completed(*[pool.start("first") for _ in range(2)])
            assert endpoint.calls == 2 * one_run, "runs of the same run key have nothing to do"
    with connect(tmp_path / "store") as catalog:
        states = catalog.execute("select name, state from experiments order by 1").fetchall()
        assert states == [("first", "completed"), ("second", "completed")]
        query = (
            "select experiment, count(*), count(distinct (example_id, metric)) from item_scores group by 1 order by 1"
        )
        assert catalog.execute(query).fetchall() == [(name, 2 * ITEMS, 2 * ITEMS) for name in ("first", "second")]


def test_a_run_whose_machine_died_goes_on_on_the_other(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    with serving(Endpoint(latency_s=0.1)) as endpoint:
        write(tmp_path, endpoint, "mortal")
        pool = Pool(tmp_path, prefect_environment, "mortal")
        with pool.worker() as mark:
            run = pool.start("mortal")
            until(lambda: endpoint.calls > ITEMS // 2, 90)
            kill(mark)
        time.sleep(0.5)
        seen = endpoint.calls
        assert ITEMS // 2 < seen < ITEMS * PER_ITEM
        pool.set_state(run, type="CRASHED", name="Crashed")  # nobody is left to report it
        pool.set_state(run, type="SCHEDULED", name="AwaitingRetry")
        with pool.worker():
            pool.completed(run)
        assert endpoint.repeated() <= IN_FLIGHT
        assert endpoint.calls - endpoint.repeated() == ITEMS * PER_ITEM
    rows = rows_of(tmp_path / "store")
    assert len(rows) == len({(row[0], row[2]) for row in rows}) == 2 * ITEMS
    with connect(tmp_path / "store") as catalog:
        assert catalog.execute("select state, count(*) from experiments group by 1").fetchall() == [("completed", 1)]
