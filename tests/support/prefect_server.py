"""A Prefect server for tests: loopback, a free port, a folder of its own, ended with the tests that use it."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from certificates import one_certificate
from ports import free_ports
from prefect_database import give_database

from evalflows.prefect_server import SERVER_SETTINGS


@contextmanager
def prefect_server(folder: Path) -> Iterator[dict[str, str]]:
    """Start a server, and yield the environment that leads to it."""
    environment = environment_of(folder)
    server = start_server(folder, environment)
    try:
        yield environment
    finally:
        end_server(server)


def environment_of(folder: Path) -> dict[str, str]:
    """The environment that leads to a server on a free port, with its database in a folder."""
    return {
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": f"http://127.0.0.1:{free_ports(1)[0]}/api",
        "PREFECT_API_SSL_CERT_FILE": str(one_certificate(folder)),
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        **SERVER_SETTINGS,
    }


def start_server(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start that server, in a process group of its own, and wait until it answers."""
    url = environment["PREFECT_API_URL"]
    port = str(urlsplit(url).port)
    if "PREFECT_API_DATABASE_CONNECTION_URL" not in environment:
        give_database(folder)
    command = [sys.executable, str(Path(__file__).with_name("serve_prefect.py")), port]
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"{url}/health", server, folder / "server.log")
    except BaseException:
        end_server(server)
        raise
    return server


def end_server(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(10)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(6000):
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the Prefect server did not start: {log.read_text()[-2000:]}")
