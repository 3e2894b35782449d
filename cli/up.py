"""Run flows from Prefect: `up` starts a server and a worker, `deploy` registers the deployments of prefect.yaml."""

import signal
import sys
from contextlib import suppress
from pathlib import Path

import click

import evalflows
from evalflows.cli.errors import one_line_errors
from evalflows.cli.processes import Process, Processes
from evalflows.cli.server import print_access
from evalflows.cli.terminal import echo
from evalflows.execution.server.home import Home, Server
from evalflows.execution.server.start import local_server
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import one_line

PREFECT = (sys.executable, "-m", "prefect", "--no-prompt")
VERBOSE = click.option("--verbose", is_flag=True, help="Show the logs and the traceback of an error.")


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the server (0: any). Default: 4200, or a free port."
)
@VERBOSE
def up(port: int | None, verbose: bool) -> None:
    """Start a worker in this folder, and register the deployments of prefect.yaml with the local Prefect server.

    The server, with its UI, is started if it is not running. If PREFECT_API_URL is set, use that API instead. Ctrl-C
    stops the worker and its runs; `evalflows down` stops the server.
    """
    with one_line_errors(verbose), Processes() as processes, suppress(KeyboardInterrupt):
        _up(port, verbose, processes)


@click.command()
@VERBOSE
def deploy(verbose: bool) -> None:
    """Register the deployments of this folder's prefect.yaml with the local server, or the API at PREFECT_API_URL."""
    with one_line_errors(verbose):
        from evalflows.flows import deployments

        file = deployments.prefect_file(Path.cwd())
        _refuse_to_hide_evalflows(file.path.parent)
        with deployments.client_of(deployments.api_url() or local_server().api) as client:
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
    stays = "; `evalflows down` stops the server" if server and not server.ends_unused else ""
    echo(f"Ctrl-C stops the worker{stays}.")
    processes.wait(lambda: False)


def _server(port: int | None) -> Server:
    """Return the local server. Raise InputError if it runs already, at another port."""
    server = local_server(port)
    if port and server.port != port:
        raise InputError(f"--port {port}: the server runs at {server.ui}, wanted `evalflows down` before")
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

    # Pick up runs started in the UI after 2 s instead of 10 s.
    environment = {"PREFECT_WORKER_QUERY_SECONDS": "2", **environment}
    log = logs / f"worker-{pool}.log" if logs else None
    processes.start("worker", [*PREFECT, "worker", "start", "--pool", pool], environment, log, end)


def _refuse_to_hide_evalflows(folder: Path) -> None:
    """Raise InputError if a module `evalflows` in this folder would hide the package: flow runs look there first."""
    for path in (folder / "evalflows.py", folder / "evalflows" / "__init__.py"):
        if path.exists() and not path.samefile(str(evalflows.__file__)):
            raise InputError(f"{path}: hides the evalflows package in flow runs, wanted another file name")
