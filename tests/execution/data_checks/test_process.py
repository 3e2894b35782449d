"""The process that checks a snapshot: what it returns, how its death is told, and when it ends."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.data_checks import process
from evalflows.data_checks.checks import run_expectations
from evalflows.data_checks.process import COMMAND, CheckProcess, CheckRequest, begin_checks, checks_end_here, checks_of
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import IncompleteError, InputError, StorageError
from evalflows.store.snapshots import freeze, load_snapshot, to_examples
from evalflows.store.store import Store

ROWS = [{"inputs": {"question": question}, "metadata": {"topic": "ü"}} for question in ("one", "two", "two")]
TOPICS = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"value_set": ["login"], "column": "metadata.topic"},
    "severity": "warning",
}
WHILE_IT_LIVES = "import sys; sys.stdin.read()"


def of(store: Store, *own: dict[str, Any]) -> CheckRequest:
    snapshot = freeze(store, to_examples(enumerate(ROWS, start=1), "rows"), name=None, source="rows")
    return CheckRequest.of(store, DatasetSpec.model_validate({"snapshot": snapshot, "expectations": list(own)}))


@pytest.fixture(autouse=True)
def real_process(checks_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CheckProcess", CheckProcess)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`runs(program)`: a Python program that runs in place of the checks."""
    return lambda program: monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", program))


@pytest.mark.slow
def test_it_returns_what_the_checks_return_here(store: Store) -> None:
    request, at = of(store, TOPICS), datetime.now(UTC)
    here = run_expectations(load_snapshot(store, request.snapshot), request.own, request.batch)
    there = checks_of(request)
    assert [replace(row, recorded_at=at) for row in there] == [replace(row, recorded_at=at) for row in here]
    assert [row.message for row in there if not row.passed] == [
        "wanted inputs: column values to be unique; 2 of 3 fail, such as "
        + ", ".join(map(repr, ['{"question":"two"}'] * 2)),
        "wanted metadata.topic: column values to be in set (value_set ['login']); 3 of 3 fail, such as 'ü', 'ü', 'ü'",
    ]


@pytest.mark.slow
def test_errors_of_the_checks_are_those_of_the_run(store: Store) -> None:
    request = of(store, {"type": "expect_nonsense"})
    with pytest.raises(InputError, match=r"^expectation 'expect_nonsense': expect_nonsense not found$"):
        checks_of(request)
    path = store.layout.sealed("examples", request.snapshot)
    with open(path, "r+b") as file:  # noqa: PTH123
        file.seek(20)
        file.write(b"damage")
    with pytest.raises(StorageError, match="damaged"):
        checks_of(request)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import sys; sys.stdin.readline(); raise MemoryError('no room')", "exit code 1: MemoryError: no room"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9: no output"),
        ("import sys; sys.exit('first\\nlast\\n\\n')", "exit code 1: last"),
    ],
)
def test_a_process_that_dies_is_one_line(store: Store, runs: Any, program: str, told: str) -> None:
    runs(program)
    long = {"type": "x" * 1_000_000}  # more than a pipe holds, and unread
    for request in (of(store), of(store, long)):
        with pytest.raises(IncompleteError) as caught:
            checks_of(request)
        assert str(caught.value) == f"data checks: their process ended with {told}"


def test_it_is_begun_once_and_ends_with_the_block(store: Store, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(WHILE_IT_LIVES)
    started: list[subprocess.Popen[bytes]] = []

    def note(self: CheckProcess, request: str) -> None:
        CheckProcess.__init__(self, request)
        started.append(self._popen)

    monkeypatch.setattr(process, "CheckProcess", type("Noted", (CheckProcess,), {"__init__": note}))
    request = of(store)
    begin_checks(store, request)
    assert not started, "outside of a block nobody would end it"
    with pytest.raises(KeyboardInterrupt), checks_end_here():
        begin_checks(store, request)
        with checks_end_here():
            begin_checks(store, request)
        (popen,) = started
        assert popen.poll() is None
        raise KeyboardInterrupt
    assert popen.returncode == -9


def test_checks_that_are_known_begin_no_process(store: Store, runs: Any) -> None:
    request = of(store)
    store.publish("checks", request.batch, run_expectations(load_snapshot(store, request.snapshot), [], request.batch))
    runs(WHILE_IT_LIVES)
    with checks_end_here():
        begin_checks(store, request)
        assert process._begun.get() == {}


def test_it_ends_with_the_process_that_started_it(store: Store) -> None:
    """Even if that one was killed: its end of the pipe closes."""
    worker = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    answer, _ = worker.communicate(f"{of(store).to_json()}\n".encode())  # closes the pipe
    assert (worker.returncode, answer) == (1, b"")


@pytest.mark.slow
def test_it_does_not_load_prefect(store: Store) -> None:
    program = (
        "import sys\nfrom evalflows.data_checks.worker import answer\nresult = answer(sys.argv[1])\n"
        "print('prefect' in sys.modules, 'great_expectations' in sys.modules, result)"
    )
    command = [sys.executable, "-P", "-c", program, of(store).to_json()]
    prefect, great_expectations, result = subprocess.check_output(command, text=True).split(" ", 2)
    assert (prefect, great_expectations) == ("False", "True")
    assert json.loads(result)["checks"]
