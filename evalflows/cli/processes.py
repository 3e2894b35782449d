"""Processes that one command starts and ends together."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from evalflows.cli.output import echo
from evalflows.specs.errors import IncompleteError
from evalflows.specs.escaping import last_line

PROCESSES_GRACE_S = 15.0
"""Seconds a process may take to end before it is killed."""

LONGEST_LINE = 1 << 16
"""Bytes after which a line of a process is printed although it has not ended."""


@dataclass(frozen=True, slots=True)
class Process:
    """A started process. It has its own session, so the terminal does not send Ctrl-C to it directly."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path | None

    def check(self) -> None:
        """Raise IncompleteError if the process has ended."""
        code = self.popen.poll()
        if code is not None:
            why = f": {last_line(self.log.read_text(errors='replace'), 300)} (log: {self.log})" if self.log else ""
            raise IncompleteError(f"the {self.name} ended unexpectedly, exit code {code}{why}")


class Processes:
    """All processes a command has started. They are ended when the block ends, last started first.

    Ctrl-C, SIGTERM and SIGHUP are recorded here and raised only from `wait`, so they cannot interrupt between starting
    a process and registering it. After a second signal, processes are killed without waiting.
    """

    def __init__(self) -> None:
        self.running: list[Process] = []
        self._asked = 0
        self._ends = ExitStack()
        self._printing: list[threading.Thread] = []

    def __enter__(self) -> "Processes":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # With a handler set, child processes start with the default, even if the shell made us ignore Ctrl-C.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # set by nohup
                self._ends.callback(signal.signal, number, signal.signal(number, self._note))
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()
        for thread in self._printing:
            thread.join(1.0)  # a process that it has started may still have its output open
        if self._asked:
            echo("stopped")

    @property
    def hurry(self) -> bool:
        """Whether to kill processes without waiting."""
        return self._asked > 1

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path | None,
        end: Callable[[Process], None],
    ) -> Process:
        """Start a process, with its output in `log`, else printed. `end` is called with it when the block ends."""
        if log:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        with log.open("ab") if log else nullcontext(subprocess.PIPE) as output:
            popen = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if popen.stdout is not None:
            self._printing.append(threading.Thread(target=_print_lines, args=[popen.stdout], daemon=True))
            self._printing[-1].start()
        process = Process(name, popen, log)
        self._ends.callback(end, process)
        self.running.append(process)
        return process

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until `until()` is true. Raise KeyboardInterrupt on a signal, IncompleteError if a process has ended."""
        while not until():
            if self._asked:
                raise KeyboardInterrupt
            for process in self.running:
                process.check()
            time.sleep(0.1)

    def end(self, process: Process, number: signal.Signals) -> None:
        """Signal a process to end, wait, then kill the rest of its process group."""
        deadline = time.monotonic() + PROCESSES_GRACE_S
        _signal_group(process.popen.pid, number)
        while process.popen.poll() is None and not self.hurry and time.monotonic() < deadline:
            time.sleep(0.05)
        _signal_group(process.popen.pid, signal.SIGKILL)
        process.popen.wait()

    def end_children(self, process: Process) -> None:
        """Signal the process groups started by a process to end, wait, then kill those left."""
        deadline, asked = time.monotonic() + PROCESSES_GRACE_S, set[int]()
        while (left := _leading_children(process.popen.pid)) and not self.hurry and time.monotonic() < deadline:
            for child in left - asked:
                _signal_group(child, signal.SIGTERM)
            asked |= left
            time.sleep(0.1)
        for child in left:
            _signal_group(child, signal.SIGKILL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked == 1:
            echo("stopping (Ctrl-C again: stop at once)", err=True)


def _print_lines(output: BinaryIO) -> None:
    """Print what a process prints, with control characters escaped: it may quote names, answers and paths."""
    with output:
        while line := output.readline(LONGEST_LINE):
            echo(line.decode(errors="replace").rstrip("\r\n"))


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or only a zombie is left (macOS)
        os.killpg(leader, number)


def _leading_children(parent: int) -> set[int]:
    """Return the live child processes that lead a process group."""
    return {child for child in _children(parent) if _leads(child)}


def _leads(pid: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


def _children(parent: int) -> Iterator[int]:
    if not Path("/proc/self/stat").exists():  # macOS
        output = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout
        yield from map(int, output.split())
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, its_parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent and state != "Z":
                yield int(stat.parent.name)
