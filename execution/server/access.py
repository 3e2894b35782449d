"""Access to Prefect's API: the configured one, or the local server, which requires a secret made at each start.

Prefect's API needs no login by default and answers every web page that a browser on this machine shows, and whoever may
use it can run code. Browsers do not send the secret by themselves, so a page has none, whatever its origin or host name
(DNS rebinding): every route except /health and /ready is refused. For the same reason CSRF tokens would add nothing.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from evalflows.execution.server.home import HOST, Home
from evalflows.execution.server.start import local_server
from evalflows.specs.errors import InputError

DENIED = (401, 403)
"""HTTP status codes of denied access."""

_lock = threading.Lock()
_local: dict[Any, Any] = {}  # the settings by which this process uses the local server, once it does


def access_denied(url: str | None) -> InputError:
    """Return the error for an API that refuses our requests (401 or 403)."""
    wanted = "PREFECT_API_AUTH_STRING as `evalflows status` prints it, or PREFECT_API_KEY"
    return InputError(f"PREFECT_API_URL={url}: access denied, wanted {wanted}")


@contextmanager
def server_access() -> Iterator[None]:
    """Give the code in this block access to the configured Prefect API, or to the local server if there is none.

    Raise InputError if the local server cannot start.
    """
    from prefect.settings import temporary_settings  # late: loading Prefect takes seconds

    access = _access()
    with temporary_settings(access) if access else nullcontext():  # entering takes 50 ms
        yield


def _access() -> Mapping[Any, Any]:
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_current_settings

    api = get_current_settings().api
    with _lock:
        if api.url and api.url != _local.get(PREFECT_API_URL):
            secret = None if api.auth_string else Home.here().secret_at(api.url)
            return {PREFECT_API_AUTH_STRING: secret} if secret else {}
        server = local_server()
        _pass_proxies_by()
        found = {PREFECT_API_URL: server.api, PREFECT_API_AUTH_STRING: Home.here().secret()}
        if found != _local:
            _local.update(found)
            _set_for_all_flows(found)
        api = get_current_settings().api
        secret = api.auth_string.get_secret_value() if api.auth_string else None
        return {} if found == {PREFECT_API_URL: api.url, PREFECT_API_AUTH_STRING: secret} else found


def _pass_proxies_by() -> None:
    """Reach the local server directly, also where the environment names a proxy: Prefect's client would ask that."""
    for name in ("NO_PROXY", "no_proxy"):  # some libraries read one, some the other
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        if HOST not in hosts:
            os.environ[name] = ",".join([*hosts, HOST])


def _set_for_all_flows(settings: Mapping[Any, Any]) -> None:
    """Use the settings in the whole process from now on: Prefect's own threads send logs and events after the block."""
    import prefect.context

    context = prefect.context.GLOBAL_SETTINGS_CONTEXT
    prefect.context.GLOBAL_SETTINGS_CONTEXT = prefect.context.SettingsContext(
        profile=context.profile, settings=context.settings.copy_with_update(updates=settings)
    )
