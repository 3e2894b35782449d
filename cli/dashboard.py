"""Serve the dashboard from the command line."""

import os
from functools import partial

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.listening import listening
from evalflows.cli.terminal import echo

GRACE_S = 2
"""Seconds that requests may take to end when the dashboard is stopped; conditions in SQL are interrupted at once."""


@click.command("dashboard")
@listening(port=4280, token_variable="EVALFLOWS_DASHBOARD_TOKEN", clients="browsers must send once")
@click.option("--verbose", is_flag=True, help="Show the traceback of an error.")
def dashboard(host: str, port: int, token: str | None, verbose: bool) -> None:
    """Serve the dashboard: pages about experiments, comparisons, decisions, judges and production, and review.

    Ctrl-C or SIGTERM ends it.
    """
    with one_line_errors(verbose):
        from evalflows.dashboard.application import application
        from evalflows.dashboard.making import Making
        from evalflows.execution.server.addresses import noted_dashboard
        from evalflows.serving.http import listen, serve, url_of
        from evalflows.serving.tokens import usable_token
        from evalflows.store.existing import existing_store

        token = usable_token(token)
        store = existing_store()
        with listen(host, port, has_token=bool(token)) as listener:
            url, root = url_of(host, listener), store.layout.root
            with noted_dashboard(root, url):
                making = Making()
                served = application(store, token, making)
                serve(served, listener, partial(_announce, url, root), grace_s=GRACE_S, stop=making.stop)
        if making.is_busy:
            os._exit(0)  # nobody waits for what its threads still read


def _announce(url: str, root: str) -> None:
    echo(f"dashboard of {root}: {url}")
