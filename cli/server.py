"""The local Prefect server: what runs, and how it is stopped."""

import os
import shlex

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.terminal import echo
from evalflows.execution.server.home import Home, Server
from evalflows.execution.server.start import is_serving, stop

VERBOSE = click.option("--verbose", is_flag=True, help="Show the traceback of an error.")


@click.command()
@VERBOSE
def status(verbose: bool) -> None:
    """Show the local Prefect server that runs and notebooks share."""
    with one_line_errors(verbose):
        home = Home.here()
        if url := os.environ.get("PREFECT_API_URL"):
            echo(f"PREFECT_API_URL={url}: runs use this API instead of the local server")
        server = home.find()
        if server is None:
            echo("no local server is running; the next run starts it")
            return
        state = "serving" if is_serving(server) else server.state
        echo(f"{state} at {server.ui}, since {server.since}, process {server.pid}")
        print_access(home, server)
        echo(f"{'folder':<10}{home.folder}")


def print_access(home: Home, server: Server) -> None:
    """Print how to log in to the UI, and how other programs use the API."""
    show = f"cat {shlex.quote(str(home.secret_file))}"
    echo(f"{'UI':<10}{server.ui}")
    echo(f"{'login':<10}with the line that `{show}` prints")
    echo(f"""{"API":<10}export PREFECT_API_URL={server.api} PREFECT_API_AUTH_STRING="$({show})\"""")


@click.command()
@VERBOSE
def down(verbose: bool) -> None:
    """Stop the local Prefect server. Runs that use it end with exit code 4 and can be resumed."""
    with one_line_errors(verbose):
        server = stop()
        echo(f"stopped the server at {server.ui}" if server else "no local server is running")
