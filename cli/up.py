"""Running from Prefect: `up` starts a server and a worker, `deploy` registers what prefect.yaml lists."""

import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from cli.errors import one_line_errors
from cli.processes import Process, Processes
from specs.errors import InputError

HOST, PREFECTS_PORT = "127.0.0.1", 4200
PREFECT = (sys.executable, "-m", "prefect", "--no-prompt")
VERBOSE = click.option("--verbose", is_flag=True, help="Show the logs, and the traceback of an error.")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The server's; without it 4200, or a free one.")
@VERBOSE
def up(port: int | None, verbose: bool) -> None:
    """Start what runs experiments from Prefect: a server with its UI, the deployments, a worker in this folder.

    Where PREFECT_API_URL is set, that API is used, and no server started. Ctrl-C stops what was started.
    """
    with one_line_errors(verbose), Processes() as processes, suppress(KeyboardInterrupt):
        _up(port, verbose, processes)


@click.command()
@VERBOSE
def deploy(verbose: bool) -> None:
    """Register the deployments of this folder's prefect.yaml, or of ours if it has none, with PREFECT_API_URL."""
    with one_line_errors(verbose):
        from flows import deployments

        url = deployments.api_url()
        if url is None:
            raise InputError("PREFECT_API_URL is not set, wanted the API to deploy to: `evalflows up` prints its own")
        file = deployments.prefect_file(Path.cwd())
        _refuse_to_hide_ours(file.path.parent)
        with deployments.client_of(url) as client:
            _say("deployed", *deployments.deploy(client, file), f"from {file.path}")


def _up(port: int | None, verbose: bool, processes: Processes) -> None:
    from flows import deployments

    _refuse_to_hide_ours(Path.cwd())
    file = deployments.prefect_file(Path.cwd())
    logs = None if verbose else deployments.home() / "evalflows"
    url = deployments.api_url()
    if url and port is not None:
        raise InputError(f"--port {port}: PREFECT_API_URL is {url}, so that no server is started here")
    url = url or _start_server(processes, _port(port), deployments.server_settings(), logs)
    with deployments.client_of(url) as client:
        deployments.create_pools(client, file.pools)
        for pool in file.pools:
            _start_worker(processes, pool, url, logs)
        _say("deployed", *deployments.deploy(client, file), f"from {file.path}")
        _say("UI", deployments.ui_url())
    _say("API", f"export PREFECT_API_URL={url}")
    _say("worker", f"runs in {Path.cwd()}")
    _say("logs", str(logs) if logs else "here")
    click.echo(f"Ctrl-C stops {' and '.join(dict.fromkeys(process.name for process in processes.running))}.")
    processes.wait(lambda: False)


def _say(what: str, *lines: str) -> None:
    for line in lines:
        click.echo(f"{what:<10}{line}")
        what = ""


def _start_server(processes: Processes, port: int, settings: Mapping[str, str], logs: Path | None) -> str:
    """Start a server, and wait until it answers. Returns the URL of its API."""
    url = f"http://{HOST}:{port}/api"
    click.echo(f"starting a Prefect server at {url.removesuffix('/api')}")
    command = [*PREFECT, "server", "start", "--host", HOST, "--port", str(port)]
    environment = {**settings, **os.environ, "PREFECT_API_URL": url}
    log = logs / "server.log" if logs else None
    processes.start("server", command, environment, log, lambda server: processes.end(server, signal.SIGTERM))
    processes.wait(lambda: _answers(url))
    return url


def _start_worker(processes: Processes, pool: str, url: str, logs: Path | None) -> None:
    """Start a worker in this folder."""

    def end(worker: Process) -> None:
        # Its flow runs first: they tell the server that they were stopped. Killed by an ending worker they do not,
        # and the server would believe in them for ever.
        processes.end_children(worker)
        processes.end(worker, signal.SIGINT)

    # A run that is started in the UI begins soon, not when ten seconds are over.
    environment = {"PREFECT_WORKER_QUERY_SECONDS": "2", **os.environ, "PREFECT_API_URL": url}
    log = logs / f"worker-{pool}.log" if logs else None
    processes.start("worker", [*PREFECT, "worker", "start", "--pool", pool], environment, log, end)


def _answers(url: str) -> bool:
    """Whether a Prefect server is ready there. Asked directly, whatever proxy there is."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=2) as answer:
            return bool(answer.read(10) == b"true")
    except OSError:
        return False


def _port(asked: int | None) -> int:
    """The port that was asked for; else Prefect's, or a free one where that is taken by something else."""
    port = PREFECTS_PORT if asked is None else asked
    if _is_free(port):
        return port or _free_port()
    if asked is not None:
        raise InputError(f"--port {asked}: taken by another program, wanted a free one (0: any)")
    if _answers(url := f"http://{HOST}:{port}/api"):
        raise InputError(
            f"port {port}: a Prefect server is there already, wanted PREFECT_API_URL={url} to use it, "
            "or --port for another (and for that a PREFECT_HOME of its own)"
        )
    click.echo(f"port {port} is taken by another program: took a free one")
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


def _refuse_to_hide_ours(folder: Path) -> None:
    """A flow run looks for modules in its folder first, so none there may have the name of a package of ours."""
    root = Path(__file__).resolve().parent.parent
    ours = {path.parent.name for path in root.glob("*/__init__.py")} & {*sys.modules}
    for name in sorted(ours) if folder.resolve() != root else ():
        for path in (folder / name, folder / f"{name}.py"):
            if path.exists():
                raise InputError(f"{path}: hides the package {name!r} of evalflows in flow runs, wanted another folder")
