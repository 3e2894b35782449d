"""Serve the dashboard, and receive traces, until a signal ends it."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evalflows.cli.late_commands import with_one_line_errors
from evalflows.cli.output import echo

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from evalflows.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

DASHBOARD_GRACE_S = 2
"""Seconds that requests may take to end when the dashboard is stopped; conditions in SQL are interrupted at once."""

MEGABYTE = 1 << 20


def listening(*, port: int, token_variable: str, clients: str) -> Callable[[Command], Command]:
    """Give a command `--host`, `--port` and `--token`; the last may be in an environment variable."""
    token_help = f"Token that {clients}. {token_variable} is safer: other users see the arguments of a process."
    options = (
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on; a wider one needs --token."
        ),
        click.option(
            "--port", type=click.IntRange(0, 65535), default=port, show_default=True, help="0: any free port."
        ),
        click.option("--token", envvar=token_variable, help=token_help),
    )

    def give(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return give


@click.command("dashboard")
@listening(port=4280, token_variable="EVALFLOWS_DASHBOARD_TOKEN", clients="browsers must send once")
@with_one_line_errors
def dashboard(host: str, port: int, token: str | None) -> None:
    """Serve the dashboard: pages about experiments, comparisons, decisions, judges, production and review.

    Ctrl-C or SIGTERM stops it.
    """
    from evalflows.dashboard.app import application
    from evalflows.dashboard.making import Making
    from evalflows.serving import listen, serve, url_of, usable_token
    from evalflows.specs.dashboard_address import note_dashboard
    from evalflows.store.store import existing_store

    token = usable_token(token)
    store = existing_store()
    with listen(host, port, has_token=bool(token)) as listener:
        url, root = url_of(host, listener), store.layout.root
        with note_dashboard(root, url):
            making = Making()
            served = application(store, token, making, _tools(store))
            announce = partial(echo, f"dashboard of {root}: {url}")
            serve(served, listener, announce, grace_s=DASHBOARD_GRACE_S, stop=making.stop)
    if making.is_busy:
        os._exit(0)  # nobody waits for what its threads still read


def _tools(store: "Store") -> "Starlette | None":
    """Return the tools for coding agents, at /mcp; None without the package mcp."""
    try:
        from evalflows.mcp_server import served_at
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        return None
    from evalflows.cli.mcp import help_of

    return served_at(store, help_of, "/mcp")


@click.command("receive")
@listening(port=4318, token_variable="EVALFLOWS_RECEIVER_TOKEN", clients="clients must send")
@click.option(
    "--max-body",
    type=click.FloatRange(0, 1024, min_open=True),
    default=20,
    show_default=True,
    metavar="MB",
    help="Largest request, as sent and after decompression.",
)
@with_one_line_errors
def receive(host: str, port: int, token: str | None, max_body: float) -> None:
    """Receive production traces over HTTP, from OpenTelemetry's exporters.

    A request is answered 200 when its spans are on disk; a second later they are in the store. Ctrl-C or SIGTERM stops
    it.
    """
    from evalflows.receiver import Limits, Receiver
    from evalflows.serving import listen, serve, url_of, usable_token
    from evalflows.store.store import Store

    token = usable_token(token)
    body = int(max_body * MEGABYTE)
    with listen(host, port, has_token=bool(token)) as listener:
        store = Store()
        receiver = Receiver(store, token, Limits(body=body, held=max(Limits().held, 4 * body)))
        url = url_of(host, listener)
        announce = partial(_announce_receiver, url, store.layout.root, has_token=bool(token))
        served, finish = receiver.application(), receiver.stop
        serve(served, listener, announce, grace_s=DASHBOARD_GRACE_S, stop=receiver.begin_to_stop, finish=finish)
    echo("stopped; everything accepted is in the store")


def _announce_receiver(url: str, root: str, *, has_token: bool) -> None:
    echo(f"receiving OpenTelemetry traces and logs at {url}, into {root}")
    echo("in the application's environment:")
    echo(f"  export OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
    if has_token:
        echo('  export OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20TOKEN"')
