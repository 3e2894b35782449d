"""Dataset checks beside a run: it pays nothing before their verdict, and leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, serving
from interrupted_runs import start, write_spec

from evalflows import evaluate
from evalflows.data_checks import process
from evalflows.data_checks.process import CheckProcess
from evalflows.specs import DatasetSpec
from evalflows.specs.errors import IncompleteError, InputError

TOPICS = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"column": "metadata.topic", "value_set": ["login"]},
}
ROWS = [{"inputs": {"question": "q1"}, "metadata": {"topic": "weather"}}]


@pytest.fixture
def real_process(checks_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CheckProcess", CheckProcess)


@pytest.fixture
def asked() -> list[str]:
    return []


def run(asked: list[str], severity: str = "critical") -> None:
    """Run a target that counts its calls, and a judge that would be paid."""

    def target(question: str) -> str:
        asked.append("target")
        return question

    def judge(outputs: Any) -> bool:
        asked.append("judge")
        return True

    dataset = DatasetSpec.model_validate({"rows": ROWS, "expectations": [TOPICS | {"severity": severity}]})
    evaluate(target, dataset, [judge], experiment_prefix="checked")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api", "real_process")
def test_nothing_is_called_before_the_verdict(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # the second time the verdict is known
        with pytest.raises(InputError, match=r"wanted metadata.topic: .*; 1 of 1 fail, such as 'weather'$"):
            run(asked)
        monkeypatch.setattr(process, "COMMAND", ("false",))
    assert asked == []
    assert rows("select count(*) from experiments") == [(0,)]
    assert rows("select count(*) from checks where flow_run_id is null") == [(0,)]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api", "real_process")
def test_a_process_that_dies_stops_the_run_before_anything_is_called(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(IncompleteError) as caught:
        patch.setattr(process, "COMMAND", (sys.executable, "-c", "raise MemoryError('no room')"))
        run(asked)
    assert str(caught.value) == "data checks: their process ended with exit code 1: MemoryError: no room"
    assert asked == []
    assert rows("select count(*) from checks") == rows("select count(*) from experiments") == [(0,)]
    run(asked, "warning")
    assert sorted(asked) == ["judge", "target"]


@pytest.mark.slow
def test_a_signal_leaves_no_process(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    with serving(Endpoint()) as endpoint:
        command = start(
            tmp_path, prefect_environment, tmp_path / "s", "run", str(write_spec(tmp_path, endpoint.base_url))
        )
        child = child_of(command)
        command.send_signal(signal.SIGTERM)
        output, _ = command.communicate(timeout=60)
    assert (command.returncode, output.decode()) == (130, "evalflows: stopped; `evalflows resume killed` continues\n")
    assert not Path(f"/proc/{child}").exists()
    assert endpoint.calls == 0


def child_of(command: subprocess.Popen[bytes]) -> int:
    """The process that checks the command's dataset, once there is one."""
    deadline = time.monotonic() + 60
    pattern = ["pgrep", "-P", str(command.pid), "-f", "data_checks.worker"]
    while not (found := subprocess.run(pattern, capture_output=True, text=True).stdout.split()):
        assert command.poll() is None and time.monotonic() < deadline, "no process was begun"
    return int(found[0])
