"""Run flows from Prefect: `up` starts a server and a worker, `deploy` registers the deployments of prefect.yaml."""

import os
import shlex
import signal
import socket
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import click

import evalflows
from evalflows.cli.errors import one_line_errors
from evalflows.cli.processes import Process, Processes
from evalflows.cli.terminal import echo
from evalflows.execution.server_access import new_secret, secret_file, write_secret
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import one_line

HOST, DEFAULT_PORT = "127.0.0.1", 4200
PREFECT = (sys.executable, "-m", "prefect", "--no-prompt")
VERBOSE = click.option("--verbose", is_flag=True, help="Show the logs and the traceback of an error.")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the server. Default: 4200, or a free port.")
@VERBOSE
def up(port: int | None, verbose: bool) -> None:
    """Start a Prefect server with its UI and a worker in this folder, and register the deployments of prefect.yaml.

    If PREFECT_API_URL is set, use that API and start no server. Ctrl-C stops everything that was started.
    """
    with one_line_errors(verbose), Processes() as processes, suppress(KeyboardInterrupt):
        _up(port, verbose, processes)


@click.command()
@VERBOSE
def deploy(verbose: bool) -> None:
    """Register the deployments of this folder's prefect.yaml with the API at PREFECT_API_URL."""
    with one_line_errors(verbose):
        from evalflows.flows import deployments

        url = deployments.api_url()
        if url is None:
            raise InputError("PREFECT_API_URL is not set, wanted the URL that `evalflows up` prints")
        file = deployments.prefect_file(Path.cwd())
        _refuse_to_hide_evalflows(file.path.parent)
        with deployments.client_of(url) as client:
            _say("deployed", *deployments.deploy(client, file), f"from {file.path}")


def _up(port: int | None, verbose: bool, processes: Processes) -> None:
    from evalflows.flows import deployments

    _refuse_to_hide_evalflows(Path.cwd())
    file = deployments.prefect_file(Path.cwd())
    logs = None if verbose else deployments.home() / "evalflows"
    url = deployments.api_url()
    if url and port is not None:
        raise InputError(f"--port {port}: PREFECT_API_URL is set to {url}, so no server is started")
    secret = None
    if not url:
        secret = deployments.server_secret() or new_secret()
        url, login = _start_server(processes, _port(port), secret, deployments.home(), logs)
    with deployments.client_of(url, secret) as client:
        deployments.create_pools(client, file.pools)
        for pool in file.pools:
            _start_worker(processes, pool, deployments.environment(), logs)
        _say("deployed", *deployments.deploy(client, file), f"from {file.path}")
        _say("UI", deployments.ui_url())
    if secret is None:
        _say("API", f"export PREFECT_API_URL={url}")
    else:
        show = f"cat {shlex.quote(str(login))}"
        _say("login", f"with the line that `{show}` prints")
        _say("API", f'export PREFECT_API_URL={url} PREFECT_API_AUTH_STRING="$({show})"')
    _say("worker", f"runs in {Path.cwd()}")
    _say("logs", str(logs) if logs else "here")
    echo(f"Ctrl-C stops {' and '.join(dict.fromkeys(process.name for process in processes.running))}.")
    processes.wait(lambda: False)


def _say(what: str, *lines: str) -> None:
    for line in lines:
        echo(one_line(f"{what:<10}{line}"))
        what = ""


def _start_server(processes: Processes, port: int, secret: str, home: Path, logs: Path | None) -> tuple[str, Path]:
    """Start a server that requires a secret, and wait until it answers. Return its API's URL and the secret's file.

    The secret is given to processes in their environment, which other users of the machine cannot see.
    """

    def end(server: Process) -> None:
        file.unlink(missing_ok=True)
        processes.end(server, signal.SIGTERM)

    url, file = f"http://{HOST}:{port}/api", secret_file(home, port)
    echo(f"starting a Prefect server at {url.removesuffix('/api')}")
    command = [*PREFECT, "server", "start", "--host", HOST, "--port", str(port)]
    environment = {
        # Only the UI, under both of its addresses, may read answers from another origin.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port},http://localhost:{port}",
        **os.environ,
        "PREFECT_API_URL": url,
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "PREFECT_API_AUTH_STRING": secret,
    }
    write_secret(file, secret)
    processes.start("server", command, environment, logs / "server.log" if logs else None, end)
    processes.wait(lambda: _answers(url))
    return url, file


def _start_worker(processes: Processes, pool: str, environment: dict[str, str], logs: Path | None) -> None:
    """Start a worker in this folder."""

    def end(worker: Process) -> None:
        # Stop its flow runs first, so that they report their end to the server. If the worker killed them, they would
        # stay "running" on the server forever.
        processes.end_children(worker)
        processes.end(worker, signal.SIGINT)

    # Pick up runs started in the UI after 2 s instead of 10 s.
    environment = {"PREFECT_WORKER_QUERY_SECONDS": "2", **environment}
    log = logs / f"worker-{pool}.log" if logs else None
    processes.start("worker", [*PREFECT, "worker", "start", "--pool", pool], environment, log, end)


def _answers(url: str) -> bool:
    """Whether a Prefect server is ready at this URL. Any configured proxy is bypassed."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=2) as answer:
            return bool(answer.read(10) == b"true")
    except OSError:
        return False


def _port(requested: int | None) -> int:
    """Return the requested port; by default Prefect's, or a free one if another program uses it."""
    port = DEFAULT_PORT if requested is None else requested
    if _is_free(port):
        return port or _free_port()
    if requested is not None:
        raise InputError(f"--port {requested}: in use by another program, wanted a free port (0: any)")
    if _answers(url := f"http://{HOST}:{port}/api"):
        raise InputError(
            f"port {port}: a Prefect server is already running, wanted PREFECT_API_URL={url} to use it, "
            "or --port and a separate PREFECT_HOME to start another"
        )
    echo(f"port {port} is in use by another program: using a free port")
    return _free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _refuse_to_hide_evalflows(folder: Path) -> None:
    """Raise InputError if a module `evalflows` in this folder would hide the package: flow runs look there first."""
    for path in (folder / "evalflows.py", folder / "evalflows" / "__init__.py"):
        if path.exists() and not path.samefile(str(evalflows.__file__)):
            raise InputError(f"{path}: hides the evalflows package in flow runs, wanted another file name")
