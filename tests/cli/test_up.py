"""`evalflows up`: what it starts, what it says, and that nothing is left when it ends."""

import os
import signal
import sqlite3
import urllib.request
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from homes import prepared
from running_up import Up, prefect_yaml, running_up, until

from evalflows.cli.main import cli

SPEC = {"name": "slow", "dataset": {"path": "rows.jsonl"}, "targets": [{"kind": "python", "function": "mine:slow"}]}
MODULE = """
import pathlib, time

def slow(question):
    pathlib.Path("under_way").touch()
    time.sleep(120)
    return question
"""
PREFECT_YAML = prefect_yaml("slow", "slow-pool")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with a deployment whose runs take two minutes."""
    place = tmp_path / "folder"
    place.mkdir()
    (place / "rows.jsonl").write_text('{"inputs": {"question": "q"}}\n')
    (place / "mine.py").write_text(MODULE)
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (place / "prefect.yaml").write_text(PREFECT_YAML)
    return place


def start_a_run(up: Up) -> str:
    """Start a run of the slow deployment, and wait until it is under way. Returns its id."""
    (deployment,) = up.ask("/deployments/filter", deployments={"name": {"any_": ["slow"]}})
    run = up.ask(f"/deployments/{deployment['id']}/create_flow_run")
    until((up.output.parent / "under_way").exists, 90)
    return str(run["id"])


@pytest.mark.slow
def test_ctrl_c_ends_worker_and_runs_and_the_unused_server(folder: Path, tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    with running_up(folder, "--port", "0", environment={"EVALFLOWS_HOME": str(home), "PREFECT_API_URL": ""}) as up:
        with urllib.request.urlopen(up.ui, timeout=10) as page:
            assert b"<html" in page.read()
        assert listeners(int(up.ui.rpartition(":")[2])) == {"127.0.0.1"}
        assert f"evalflows: started Prefect's server, with its UI at {up.ui}; it ends with this session\n" in up.printed
        assert f"deployed  run_experiment/slow\n          from {folder / 'prefect.yaml'}\n" in up.printed
        run = start_a_run(up)
        assert len(up.left()) == 3, "wanted a server, a worker, a flow run"
        assert up.interrupt() == 0
        until(lambda: up.left() == [], 30)  # the server ends with its last user
        assert up.printed.endswith("Ctrl-C stops the worker.\nstopping (Ctrl-C again: stop at once)\nstopped\n")
    (folder_of_server,) = home.glob("prefect-*")
    with sqlite3.connect(folder_of_server / "prefect.db") as database:
        states = database.execute("select state_name from flow_run where id = ?", [run]).fetchall()
    assert states == [("Crashed",)], "the server believes in a run that was stopped"
    assert {log.name for log in folder_of_server.glob("*.log")} == {"server.log", "worker-slow-pool.log"}


@pytest.mark.slow
def test_when_the_worker_dies_all_ends_with_a_line(folder: Path, prefect_environment: dict[str, str]) -> None:
    with running_up(folder, environment=prefect_environment) as up:
        assert up.url == prefect_environment["PREFECT_API_URL"]
        (worker,) = up.left()  # only the worker is ours
        os.kill(worker, signal.SIGKILL)
        assert up.process.wait(30) == 4
        assert up.left() == []
    last = up.printed.splitlines()[-1]
    assert last.startswith("evalflows: the worker ended unexpectedly, exit code -9: ")
    assert "Traceback" not in up.printed
    with urllib.request.urlopen(f"{prefect_environment['PREFECT_API_URL']}/health") as answer:
        assert answer.read() == b"true"


NOBODY = "http://127.0.0.1:9/api"


def test_an_api_that_is_not_there_is_told_in_a_line(folder: Path) -> None:
    nobody = f"PREFECT_API_URL={NOBODY}: no Prefect API answers there: [Errno 111] Connection refused"
    refused(["deploy"], folder, {"PREFECT_API_URL": NOBODY}, nobody)
    is_set = f"--port 4999: PREFECT_API_URL is set to {NOBODY}, so no server is started"
    refused(["up", "--port", "4999"], folder, {"PREFECT_API_URL": NOBODY}, is_set)


def test_a_folder_that_hides_evalflows_is_refused(tmp_path: Path) -> None:
    name = "evalflows/__init__.py"
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).touch()
    hidden = "hides the evalflows package in flow runs, wanted another file name"
    refused(["up"], tmp_path, {"PREFECT_API_URL": NOBODY}, f"{tmp_path / name}: {hidden}")


def test_a_folder_without_a_prefect_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evalflows").mkdir()  # of specs, say: it hides nothing
    message = f"{tmp_path / 'prefect.yaml'}: no such file, wanted one with deployments: docs/guides/deployments.md"
    refused(["up"], tmp_path, {"PREFECT_API_URL": NOBODY}, message)


def refused(arguments: list[str], folder: Path, environment: dict[str, str], message: str) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with pytest.MonkeyPatch.context() as patch, temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}):
        patch.chdir(folder)
        done = CliRunner(env=environment).invoke(cli, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"evalflows: {message}"), done.stderr
    assert done.stderr.count("\n") == 1


def listeners(port: int) -> set[str]:
    """The addresses at which something listens on a port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, local_port = line.split()[1].split(":")
            if int(local_port, 16) == port and line.split()[3] == "0A":
                found.add("127.0.0.1" if address == "0100007F" else address)
    return found
