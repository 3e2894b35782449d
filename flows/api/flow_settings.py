"""The settings under which a program runs a flow in its own process."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, get_current_settings

from evalflows.execution.server.access import DENIED, access_denied, server_access
from evalflows.specs.errors import InputError
from evalflows.tasks.changed_settings import changed_settings
from evalflows.tasks.server_watch import server_watched

REACHED_WITHIN_S = 10.0
"""Seconds that a server may take to answer that it is there."""


@contextmanager
def flow_settings() -> Iterator[None]:
    """Run flows of this block without heartbeats, on the configured Prefect API or else on the local server.

    Heartbeats tell a server that a worker's flow run has died. Here they would only make every run last whole seconds:
    the run waits for their thread, which sleeps for a second at a time. Raise InputError if the server denies access or
    cannot be reached, and IncompleteError if it is lost later: Prefect's client would try for minutes.
    """
    try:
        with server_access(), changed_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            _check_reachable(get_current_settings().api.url or "")
            with server_watched():
                yield
    except PrefectHTTPStatusError as error:
        if error.response.status_code not in DENIED:
            raise
        raise access_denied(get_current_settings().api.url) from error


def _check_reachable(url: str) -> None:
    """Raise InputError if nothing answers at a server's address. How it answers does not matter here."""
    try:
        with urlopen(f"{url.rstrip('/')}/health", timeout=REACHED_WITHIN_S):
            pass
    except HTTPError:
        pass
    except (OSError, ValueError) as error:  # TimeoutError and URLError are OSErrors
        why = error.reason if isinstance(error, URLError) else error
        if not isinstance(why, ssl.SSLError):  # Prefect may know other certificates
            text = getattr(why, "strerror", None) or why
            raise InputError(f"PREFECT_API_URL={url}: {text}, wanted a running Prefect server") from error
