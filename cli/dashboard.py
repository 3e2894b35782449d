"""Serve the dashboard from the command line."""

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.listening import listening
from evalflows.cli.terminal import echo

GRACE_S = 5
"""Seconds that requests may take to end when the dashboard is stopped."""


@click.command("dashboard")
@listening(port=4280, token_variable="EVALFLOWS_DASHBOARD_TOKEN", clients="browsers must send once")
@click.option("--verbose", is_flag=True, help="Show the traceback of an error.")
def dashboard(host: str, port: int, token: str | None, verbose: bool) -> None:
    """Serve the dashboard: pages about experiments, comparisons, decisions, judges and production, and review.

    Ctrl-C or SIGTERM ends it.
    """
    with one_line_errors(verbose):
        from evalflows.dashboard.application import application
        from evalflows.execution.server.addresses import noted_dashboard
        from evalflows.serving.http import listen, serve, url_of
        from evalflows.store.existing import existing_store

        store = existing_store()
        with listen(host, port, has_token=bool(token)) as listener:
            url, root = url_of(host, listener), store.layout.root
            with noted_dashboard(root, url):
                serve(application(store, token or None), listener, lambda: _announce(url, root), grace_s=GRACE_S)


def _announce(url: str, root: str) -> None:
    echo(f"dashboard of {root}: {url}")
