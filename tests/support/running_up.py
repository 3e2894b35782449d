"""`evalflows up` for tests: begun in a folder, ended with the block, and nothing of it may be left."""

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVALFLOWS = str(Path(sys.executable).with_name("evalflows"))
MARK = "EVALFLOWS_TEST_MARK"
_PREFECT_YAML = """
pull:
  - prefect.deployments.steps.set_working_directory: {directory: .}
deployments:
  - name: %s
    entrypoint: evalflows.flows.run_experiment.run_experiment
    build:
      - evalflows.flows.deployments.spec_of: {file: spec.yaml%s}
    parameters: {spec: "{{ spec }}", resume: null}
    work_pool: {name: %s, job_variables: {working_dir: .}}
"""


@dataclass(frozen=True)
class Up:
    """One that is up: what it has printed, and the API that it serves or uses."""

    process: subprocess.Popen[bytes]
    output: Path
    mark: str

    @property
    def printed(self) -> str:
        return self.output.read_text()

    @property
    def url(self) -> str:
        return re.findall(r"PREFECT_API_URL=(\S+)", self.printed)[0]

    @property
    def ui(self) -> str:
        return re.findall(r"^UI +(\S+)$", self.printed, flags=re.M)[0]

    @property
    def secret(self) -> str | None:
        """What the server wants to be told, read as the printed line says; None if it is not a server of `up`."""
        line = re.findall(r"^login +with the line that `cat (.+)` prints$", self.printed, flags=re.M)
        return Path(shlex.split(line[0])[0]).read_text().strip() if line else None

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that use the API."""
        access = {} if self.secret is None else {"PREFECT_API_AUTH_STRING": self.secret}
        return {"PREFECT_API_URL": self.url, **access}

    def ask(self, path: str, **content: Any) -> Any:
        """What the API answers to a POST of somebody who has the secret."""
        return ask(self.url, path, self.secret, **content)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to end. Returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def left(self) -> list[int]:
        """The processes that it started, and theirs, which still live."""
        return sorted(marked(self.mark) - {self.process.pid})


def prefect_yaml(name: str, pool: str = "evalflows", changes: str | None = None) -> str:
    """A prefect.yaml with one deployment, of the folder's spec.yaml with changes as a list of YAML."""
    return _PREFECT_YAML % (name, f", changes: {changes}" if changes else "", pool)


@contextmanager
def running_up(
    folder: Path, *arguments: str, environment: Mapping[str, str], command: str | Path = EVALFLOWS
) -> Iterator[Up]:
    """Run `evalflows up` in a folder, ready when the block begins."""
    mark = uuid.uuid4().hex
    own = {**os.environ, **environment, MARK: mark}
    output = folder / "up.txt"
    with output.open("wb") as file:
        process = subprocess.Popen([command, "up", *arguments], cwd=folder, env=own, stdout=file, stderr=file)
    one = Up(process, output, mark)
    try:
        until(lambda: "Ctrl-C stops" in one.printed or process.poll() is not None, 120)
        assert process.poll() is None, one.printed
        yield one
    finally:
        with suppress(subprocess.TimeoutExpired):
            if process.poll() is None:
                one.interrupt()
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(condition: Any, seconds: float) -> Any:
    """What a condition gives once that is true. Raises TimeoutError when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise TimeoutError(f"waited {seconds} s for nothing")


def ask(url: str, path: str, secret: str | None = None, /, **content: Any) -> Any:
    """What a Prefect API answers to a POST."""
    headers = {"content-type": "application/json"}
    if secret is not None:
        headers["authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    request = urllib.request.Request(url + path, data=json.dumps(content).encode(), headers=headers)
    for _ in range(20):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:  # its database is busy, as Prefect's own clients know too
                raise
            time.sleep(1)
    raise AssertionError(f"{path}: the server answered 503 for 20 s")


def marked(mark: str) -> set[int]:
    """The processes that bear a mark in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found
