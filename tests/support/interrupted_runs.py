"""Runs of the command that are interrupted and resumed: their spec, their start, and the rows of their store."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from command import command, with_support
from endpoint import Endpoint
from plain_flows import plain_flows
from progress_lines import without_progress

from evalflows.cli.main import cli
from evalflows.store import connect

ITEMS, IN_FLIGHT, PER_ITEM = 200, 10, 2
ROWS = """
select example_id, repetition, metric, value, label, status, output_status, outputs::varchar
from item_scores order by all
"""


def write_spec(folder: Path, base_url: str, items: int = ITEMS) -> Path:
    rows = [
        {"id": f"q{i}", "inputs": {"question": f"What is {i} + {i}?"}, "reference_outputs": {"answer": str(2 * i)}}
        for i in range(items)
    ]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    spec = {
        "name": "killed",
        "dataset": {"path": "rows.jsonl"},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "m", "max_in_flight": IN_FLIGHT}},
        "chunk_size": items // 8,
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


WITHOUT_PREFECT = """
from plain_flows import plain_flows
from evalflows.cli.main import main
with plain_flows():
    main()
"""


def start(
    folder: Path, environment: dict[str, str] | None, store: Path | None, *arguments: str
) -> subprocess.Popen[bytes]:
    """Start the command on a store, else on that of the environment; without Prefect if no environment is given."""
    places = {} if store is None else {"EVALFLOWS_STORE": str(store), "EVALFLOWS_SPOOL": f"{store}-spool"}
    return subprocess.Popen(
        command(*arguments) if environment is not None else [sys.executable, "-c", WITHOUT_PREFECT, *arguments],
        cwd=folder,
        env=with_support((environment or {}) | places | {"PYTHONFAULTHANDLER": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    output = output_of(process)
    assert process.returncode == 0, output


def in_process(store: Path, *arguments: str) -> None:
    """Run the command on a store in this process, beside the store, without Prefect."""
    with pytest.MonkeyPatch.context() as patch, plain_flows():
        patch.chdir(store.parent)
        patch.setenv("EVALFLOWS_STORE", str(store))
        patch.setenv("EVALFLOWS_SPOOL", f"{store}-spool")
        done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output


def output_of(process: subprocess.Popen[bytes], within: float = 300) -> str:
    """Return what a started command says until it ends; fail with the stacks of its threads if it takes longer.

    It takes some 20 s; much longer only if the disk of a busy machine lets it wait.
    """
    try:
        return without_progress(process.communicate(timeout=within)[0].decode())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        output = process.communicate(timeout=10)[0].decode()
        raise AssertionError(f"the command had not ended after {within:g} s:\n{output}") from None


def rows_of(store: Path | str) -> list[Any]:
    with connect(store) as catalog:
        return catalog.execute(ROWS).fetchall()


def killed_and_resumed(
    folder: Path, environment: dict[str, str] | None, spec: Path, endpoint: Endpoint, moments: list[int]
) -> subprocess.Popen[bytes]:
    """Run a spec called `killed` on a store of that name; kill and resume it after these numbers of calls."""
    process = start(folder, environment, folder / "killed", "run", str(spec))
    for moment in moments:
        when_called(process, endpoint, moment)
        process.kill()
        process.communicate()
        process = start(folder, environment, folder / "killed", "resume", "killed")
    return process


def when_called(process: subprocess.Popen[bytes], endpoint: Endpoint, calls: int) -> None:
    deadline = time.monotonic() + 60
    while endpoint.calls < calls:
        assert process.poll() is None and time.monotonic() < deadline, "ended before it could be killed"
        time.sleep(0.002)
