"""The local Prefect server: start it with a worker, as processes that start and end together, show it, stop it, and
register deployments."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import click

import evalflows
from evalflows.cli.batches import batches_document, print_batches
from evalflows.cli.late_commands import FORMAT, one_line_errors, print_json, with_one_line_errors
from evalflows.cli.output import echo
from evalflows.prefect_server import (
    IDLE_MINUTES,
    Home,
    Server,
    is_serving,
    local_server,
    may_use_another,
    results_folder,
    stop,
)
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.escaping import last_line, one_line
from evalflows.specs.frozen import dataclass
from evalflows.store.store import Store

PREFECT = (sys.executable, "-m", "prefect", "--no-prompt")
UP_VERBOSE = click.option("--verbose", is_flag=True, help="Show the logs and the traceback of an error.")

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


@click.command()
@FORMAT
@with_one_line_errors
def status(form: str) -> None:
    """Show the Prefect server that runs and notebooks use, and the batches that runs of this folder wait for.

    The server is that of PREFECT_API_URL or of the Prefect profile, else the local one. Exit code 2 if such an API does
    not answer.
    """
    home = Home.here()
    server = home.find()
    other = _configured_api() if may_use_another() else None
    state = None if server is None else "serving" if is_serving(server) else server.state
    if form == "json":
        local = server and {**asdict(server), "state": state, "ui": server.ui, "api": server.api}
        batches = batches_document(Store())
        print_json({"configured_api": other, "local_server": local, "folder": str(home.folder), "batches": batches})
        return
    print_batches(Store())
    if other:
        echo(f"runs use the API at {other['url']}, which answers: Prefect {other['prefect_version']}")
    if server is None:
        if not other:
            echo("no local server is running; the next run starts it")
        return
    echo(f"{state} at {server.ui}, since {server.since}, process {server.pid}")
    print_access(home, server)
    echo(f"{'folder':<10}{home.folder}")
    if server.idle_minutes and not server.ends_unused:
        echo(f"{'ends':<10}after {server.idle_minutes:g} minutes without a run, a page or a schedule ({IDLE_MINUTES})")


def _configured_api() -> dict[str, str] | None:
    """Return the address of the configured API and its version of Prefect; None if there is none. Loads Prefect.

    Raise InputError if it does not answer.
    """
    from evalflows.flows import deployments

    if (url := deployments.api_url()) is None:
        return None
    with deployments.client_of(url) as client:
        return {"url": url, "prefect_version": client.api_version()}


def print_access(home: Home, server: Server) -> None:
    """Print how to log in to the UI, and how other programs use the API."""
    show = f"cat {shlex.quote(str(home.secret_file))}"
    echo(f"{'UI':<10}{server.ui}")
    echo(f"{'login':<10}with the line that `{show}` prints")
    echo(f"""{"API":<10}export PREFECT_API_URL={server.api} PREFECT_API_AUTH_STRING="$({show})\"""")


@click.command()
@with_one_line_errors
def down() -> None:
    """Stop the local Prefect server. Runs that use it end with exit code 4 and can be resumed."""
    server = stop()
    echo(f"stopped the server at {server.ui}" if server else "no local server is running")


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the server (0: any). Default: 4200, or a free port."
)
@UP_VERBOSE
def up(port: int | None, verbose: bool) -> None:
    """Start a worker in this folder, and register the deployments of prefect.yaml with the local Prefect server.

    The server, with its UI, is started if it is not running. If PREFECT_API_URL is set, use that API instead. Ctrl-C
    stops the worker and its runs; `evalflows down` stops the server.
    """
    with one_line_errors(verbose), Processes() as processes, suppress(KeyboardInterrupt):
        _up(port, verbose, processes)


@click.command()
@click.option("--replace", "replaces", is_flag=True, help="Also replace those registered from another folder.")
@UP_VERBOSE
def deploy(replaces: bool, verbose: bool) -> None:
    """Register the deployments of this folder's prefect.yaml with the local server, or the API at PREFECT_API_URL.

    Only deployments of evalflows' own flows are registered; `prefect deploy` deploys the others.
    """
    with one_line_errors(verbose):
        from evalflows.flows import deployments

        file = deployments.prefect_file(Path.cwd())
        _refuse_to_hide_evalflows(file.path.parent)
        with deployments.client_of(deployments.api_url() or local_server().api) as client:
            if not replaces:
                deployments.refuse_those_of_others(client, file)
            _say("deployed", *deployments.deploy(client, file), f"from {file.path}")


def _up(port: int | None, verbose: bool, processes: Processes) -> None:
    from evalflows.flows import deployments

    _refuse_to_hide_evalflows(Path.cwd())
    file = deployments.prefect_file(Path.cwd())
    logs = None if verbose else Home.here().folder
    url = deployments.api_url()
    if url and port is not None:
        raise InputError(f"--port {port}: PREFECT_API_URL is set to {url}, so no server is started")
    server = None if url else _server(port)
    with deployments.client_of(server.api if server else url or "") as client:
        deployments.refuse_those_of_others(client, file)
        deployments.create_pools(client, file.pools)
        for pool in file.pools:
            _start_worker(processes, pool, deployments.environment(), logs)
        _say("deployed", *deployments.deploy(client, file), f"from {file.path}")
        if url:
            _say("UI", deployments.ui_url())
            _say("API", f"export PREFECT_API_URL={url}")
    if server:
        print_access(Home.here(), server)
    _say("worker", f"runs in {Path.cwd()}")
    _say("logs", str(logs) if logs else "here")
    stays = f"; {hints.stop_server().code} stops the server" if server and not server.ends_unused else ""
    echo(f"Ctrl-C stops the worker{stays}.")
    processes.wait(lambda: False)


def _server(port: int | None) -> Server:
    """Return the local server. Raise InputError if it runs already, at another port."""
    server = local_server(port)
    if port and server.port != port:
        raise InputError(f"--port {port}: the server runs at {server.ui}, wanted {hints.stop_server().code} first")
    return server


def _say(what: str, *lines: str) -> None:
    for line in lines:
        echo(one_line(f"{what:<10}{line}"))
        what = ""


def _start_worker(processes: Processes, pool: str, environment: dict[str, str], logs: Path | None) -> None:
    """Start a worker in this folder."""

    def end(worker: Process) -> None:
        # Stop its flow runs first, so that they report their end to the server. If the worker killed them, they would
        # stay "running" on the server forever.
        processes.end_children(worker)
        processes.end(worker, signal.SIGINT)

    # Pick up runs started in the UI after 2 s instead of 10 s, and keep exceptions where `evalflows forget` finds them.
    results = {"PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(results_folder())}
    environment = {"PREFECT_WORKER_QUERY_SECONDS": "2", **results, **environment}
    log = logs / f"worker-{pool}.log" if logs else None
    processes.start("worker", [*PREFECT, "worker", "start", "--pool", pool], environment, log, end)


def _refuse_to_hide_evalflows(folder: Path) -> None:
    """Raise InputError if a module `evalflows` in this folder would hide the package: flow runs look there first."""
    for path in (folder / "evalflows.py", folder / "evalflows" / "__init__.py"):
        if path.exists() and not path.samefile(str(evalflows.__file__)):
            raise InputError(f"{path}: hides the evalflows package in flow runs, wanted another file name")


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
