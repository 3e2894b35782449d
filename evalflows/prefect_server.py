"""Find the local Prefect server, start it if there is none, and stop it. Prefect itself is not loaded."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO

from evalflows.execution.server.home import Home, Server, hold_shared, is_locked
from evalflows.execution.server.process import ANOTHER_SERVES
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.safe_text import last_line, print_note

ENDS_UNUSED = ("CI", "PYTEST_VERSION")
"""Environment variables under which the server ends with the last process that uses it."""

SAY_EVERY_S = 10.0
GRACE_S = 15.0
"""Seconds that the server may take to end before it is killed."""

_started: list["subprocess.Popen[bytes]"] = []
_announced: set[int] = set()
_uses: dict[str, IO[bytes]] = {}  # the locks that show that this process uses a server, by folder


def begin(port: int | None = None) -> None:
    """Start the local server if there is none, without waiting for it.

    Several processes may do so at once: only one server gets the lock, and the others end.
    """
    home = Home.here()
    home.make()
    _use(home)
    if not is_locked(home.lock) and not any(process.poll() is None for process in _started):
        _started.append(_spawn(port))


def begin_early() -> None:
    """Start the local server while modules load and the spec is checked, unless another API may be configured.

    Prefect, which knows for certain, takes seconds to load.
    """
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    files = [home / "profiles.toml", Path("prefect.toml"), Path("pyproject.toml"), Path(".env")]
    if not os.environ.get("PREFECT_API_URL") and not any(_mentions_prefect(file) for file in files):
        begin()


def _mentions_prefect(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "tool.prefect" in text or "PREFECT_API_URL" in text or path.name == "prefect.toml"


def local_server(port: int | None = None) -> Server:
    """Return the local server, started if there is none, as soon as it answers. Wait as long as it lives.

    Raise InputError if it cannot start, with the reason.
    """
    home = Home.here()
    begin(port)
    told = time.monotonic()
    while True:
        server = home.find()
        if server and is_serving(server):
            _announce(server)
            return server
        if server is None and _has_ended(home):
            begin(port)  # another process's server has ended
        if time.monotonic() - told > SAY_EVERY_S:
            told = time.monotonic()
            print_note(f"waiting for Prefect's server: {server.state if server else 'starting'}")
        time.sleep(0.05)


def stop() -> Server | None:
    """End the local server. Return it, or None if there is none."""
    home = Home.here()
    server = home.find()
    if server is None:
        return None
    deadline = time.monotonic() + GRACE_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)
        while is_locked(home.lock) and (number == signal.SIGKILL or time.monotonic() < deadline):
            time.sleep(0.05)
    home.clear()
    return server


def _spawn(port: int | None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "evalflows.execution.server.process"]
    if port is not None:
        command += ["--port", str(port)]
    if any(os.environ.get(name) for name in ENDS_UNUSED):
        command.append("--end-unused")
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")


def _use(home: Home) -> None:
    """Show, as long as this process lives, that it uses the server."""
    if str(home.folder) not in _uses:
        _uses[str(home.folder)] = hold_shared(home.users)


def _has_ended(home: Home) -> bool:
    """Whether no server lives or starts. Raise InputError if the one that this process started gave up."""
    if is_locked(home.lock) or not _started:
        return not is_locked(home.lock)
    code = _started[-1].poll()
    if code == 2:
        raise InputError(last_line(home.log.read_text(errors="replace")))
    if code is not None and code not in (0, ANOTHER_SERVES):
        last = last_line(home.log.read_text(errors="replace"))
        raise IncompleteError(f"Prefect's server ended, exit code {code}: {last} (log: {home.log})")
    return code is not None


def is_serving(server: Server) -> bool:
    """Whether the server is ready. Any configured proxy is bypassed."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{server.api}/health", timeout=5) as it:
            return bool(it.read(10) == b"true")
    except OSError:
        return False


def _announce(server: Server) -> None:
    """Say where the server is, once, in the process that started it."""
    if server.pid not in _announced and any(process.pid == server.pid for process in _started):
        lasts = "it ends with this session" if server.ends_unused else "`evalflows down` stops it"
        print_note(f"started Prefect's server, with its UI at {server.ui}; {lasts}")
        _announced.add(server.pid)
