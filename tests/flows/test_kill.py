"""A run that is killed loses nothing, doubles nothing, and pays for no more than what was in flight again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from endpoint import Endpoint, serving

from evalflows.store import connect

ITEMS, IN_FLIGHT, PER_ITEM = 200, 10, 2
ROWS = """
select example_id, repetition, metric, value, label, status, output_status, outputs::varchar
from item_scores order by all
"""


def write_spec(folder: Path, base_url: str) -> Path:
    rows = [
        {"id": f"q{i}", "inputs": {"question": f"What is {i} + {i}?"}, "reference_outputs": {"answer": str(2 * i)}}
        for i in range(ITEMS)
    ]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    spec = {
        "name": "killed",
        "dataset": {"path": "rows.jsonl"},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "m", "max_in_flight": IN_FLIGHT}},
        "chunk_size": 25,
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def start(folder: Path, environment: dict[str, str], store: Path, *arguments: str) -> subprocess.Popen[bytes]:
    own = {
        "EVALFLOWS_STORE": str(store),
        "EVALFLOWS_SPOOL": str(store) + "-spool",
        "PYTHONPATH": str(Path(__file__).parent.parent / "support"),
    }
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("evalflows")), *arguments],
        cwd=folder,
        env=os.environ | environment | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output.decode()


def rows_of(store: Path) -> list[Any]:
    with connect(store) as catalog:
        return catalog.execute(ROWS).fetchall()


def when_called(process: subprocess.Popen[bytes], endpoint: Endpoint, calls: int) -> None:
    deadline = time.monotonic() + 60
    while endpoint.calls < calls:
        assert process.poll() is None and time.monotonic() < deadline, "ended before it could be killed"
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_at_three_moments_and_resumed(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    moments = sorted(random.Random(7).sample(range(20, ITEMS * PER_ITEM - 20), 3))
    with serving(Endpoint(latency_s=0.03)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, prefect_environment, tmp_path / "killed", "run", str(spec))
        for moment in moments:
            when_called(process, endpoint, moment)
            process.kill()
            process.communicate()
            process = start(tmp_path, prefect_environment, tmp_path / "killed", "resume", "killed")
        finish(process)
        seen, repeated = endpoint.calls, endpoint.repeated()

        finish(start(tmp_path, prefect_environment, tmp_path / "unbroken", "run", str(spec)))

    killed, unbroken = rows_of(tmp_path / "killed"), rows_of(tmp_path / "unbroken")
    assert killed == unbroken
    assert len(killed) == ITEMS * 2  # a row for each example and metric
    assert len({(row[0], row[2]) for row in killed}) == ITEMS * 2
    print(f"killed at calls {moments}: the endpoint saw {seen} calls for {ITEMS * PER_ITEM}, {repeated} of them again")
    assert repeated <= 3 * IN_FLIGHT
    assert seen - repeated == ITEMS * PER_ITEM
    with connect(tmp_path / "killed") as catalog:
        assert catalog.execute(
            "select count(*), count(distinct state), any_value(state) from experiments"
        ).fetchall() == [(1, 1, "completed")]
    assert not list((tmp_path / "killed-spool").rglob("*.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_and_resumed(
    tmp_path: Path, prefect_environment: dict[str, str], number: signal.Signals
) -> None:
    with serving(Endpoint(latency_s=0.2)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, prefect_environment, tmp_path / "stopped", "run", str(spec))
        when_called(process, endpoint, 40)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output.decode()) == (
            130,
            "evalflows: stopped; `evalflows resume killed` continues\n",
        )
        assert endpoint.calls < 100, "no call begins once it is stopped"
        endpoint.latency_s = 0.0
        finish(start(tmp_path, prefect_environment, tmp_path / "stopped", "resume", "killed"))
    assert endpoint.repeated() <= IN_FLIGHT
    assert len(rows_of(tmp_path / "stopped")) == ITEMS * 2


@pytest.mark.slow
def test_further_signals_end_it_at_once_without_a_traceback(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    with serving(Endpoint(latency_s=5.0)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, prefect_environment, tmp_path / "stopped", "run", str(spec))
        when_called(process, endpoint, IN_FLIGHT)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        output, _ = process.communicate(timeout=60)
        texts = ["evalflows: stopped; `evalflows resume killed` continues\n"]
        texts.append(texts[0].replace("stopped;", "stopped at once;"))
        assert process.returncode == 130
        assert output.decode() in texts
        endpoint.latency_s = 0.0
        finish(start(tmp_path, prefect_environment, tmp_path / "stopped", "resume", "killed"))
    assert len(rows_of(tmp_path / "stopped")) == ITEMS * 2
