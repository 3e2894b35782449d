"""The settings under which a program runs a flow in its own process."""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, get_current_settings, temporary_settings

from evalflows.execution.server_access import DENIED, access_denied, server_access


@contextmanager
def flow_settings() -> Iterator[None]:
    """Run flows of this block without heartbeats, and on a server that requires a secret if evalflows starts it.

    Heartbeats tell a server that a worker's flow run has died. Here they would only make every run last whole seconds:
    the run waits for their thread, which sleeps for a second at a time. Raise InputError if the server denies access.
    """
    try:
        with server_access(), temporary_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    except PrefectHTTPStatusError as error:
        if error.response.status_code not in DENIED:
            raise
        raise access_denied(get_current_settings().api.url) from error
