"""Starting processes and ending them, with all that they started."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import evalflows.cli.server
from evalflows.cli.server import Process, Processes
from evalflows.specs.errors import IncompleteError

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
other = subprocess.Popen(["sleep", "60"], start_new_session=True)
[child.wait(), other.wait()]
print("alone", flush=True)
time.sleep(60)
"""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """A block in which processes are started, with little patience for those that do not end."""
    monkeypatch.setattr(evalflows.cli.server, "PROCESSES_GRACE_S", 1.0)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Processes() as block:
        yield block
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def start(processes: Processes, program: str, log: Path) -> Process:
    return processes.start("program", [sys.executable, "-c", program], {}, log, lambda process: process.popen.kill())


@pytest.mark.parametrize(("asked", "least", "most"), [(0, 1.0, 10.0), (2, 0.0, 0.9)])
def test_what_does_not_end_is_killed(
    asked: int, least: float, most: float, processes: Processes, tmp_path: Path
) -> None:
    process = start(processes, STUBBORN, tmp_path / "log")
    processes.wait(lambda: (tmp_path / "log").read_text() == "up\n")
    for _ in range(asked):
        os.kill(os.getpid(), signal.SIGINT)
    begun = time.monotonic()
    processes.end(process, signal.SIGTERM)
    assert least <= time.monotonic() - begun < most
    assert process.popen.returncode == -signal.SIGKILL


def test_output_that_is_not_logged_is_printed_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = r"import os; os.write(1, b'a\x1b[31mred\n'); os.write(2, b'b\xe2\x80\xaec\xff\r\nx' + b'y' * 20)"
    monkeypatch.setattr(evalflows.cli.server, "LONGEST_LINE", 16)
    with Processes() as block:
        process = block.start("program", [sys.executable, "-c", program], {}, None, lambda process: None)
        process.popen.wait()
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == "a\\x1b[31mred\nb\\u202ec\ufffd\n" + "x" + "y" * 15 + "\n" + "y" * 5 + "\n"


def test_children_are_ended_and_their_parent_goes_on(processes: Processes, tmp_path: Path) -> None:
    parent = start(processes, PARENT, tmp_path / "log")
    processes.wait(lambda: (tmp_path / "log").read_text() == "up\n")
    processes.end_children(parent)
    processes.wait(lambda: (tmp_path / "log").read_text() == "up\nalone\n")


def test_one_that_ended_by_itself_is_told(processes: Processes, tmp_path: Path) -> None:
    start(processes, "import sys; print('first', flush=True); sys.exit('no space left')", tmp_path / "log")
    with pytest.raises(IncompleteError, match="the program ended unexpectedly, exit code 1: no space left"):
        processes.wait(lambda: False)


def test_waiting_ends_when_asked_to(processes: Processes) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        processes.wait(lambda: False)
