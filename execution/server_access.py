"""Access to the Prefect servers that evalflows starts: each requires a secret, made anew at each start.

Prefect's API needs no login by default and answers every web page that a browser on this machine shows, and whoever may
use it can run code. Browsers do not send the secret by themselves, so a page has none, whatever its origin or host name
(DNS rebinding): every route except /health and /ready is refused. For the same reason CSRF tokens would add nothing.
"""

import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evalflows.specs.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")

NO_ORIGIN = "http://127.0.0.1"
"""The origin that may call a temporary server: it has no UI, and an empty setting would allow every origin."""

DENIED = (401, 403)
"""HTTP status codes of denied access."""

_lock = threading.Lock()
_temporary: dict[str, Any] = {}  # settings of this process's temporary server, once there is one


def new_secret() -> str:
    """Return an auth string as Prefect wants it: `user:password`."""
    return f"evalflows:{secrets.token_urlsafe(32)}"


def secret_file(home: Path, port: int) -> Path:
    """Return the file that holds the secret of the server at a port of this machine while `evalflows up` runs it."""
    return home / "evalflows" / f"auth-{port}"


def write_secret(path: Path, secret: str) -> None:
    """Write a secret to a new file that only its owner can read. Raise InputError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def read_secret(home: Path, url: str) -> str | None:
    """Return the secret of a server that `evalflows up` runs at this URL; None if there is no such server."""
    try:
        parts = urlsplit(url)
        if parts.hostname not in LOOPBACK or parts.port is None:
            return None
        return secret_file(home, parts.port).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def access_denied(url: str | None) -> InputError:
    """Return the error for an API that refuses our requests (401 or 403)."""
    wanted = "PREFECT_API_AUTH_STRING as `evalflows up` prints it, or PREFECT_API_KEY"
    return InputError(f"PREFECT_API_URL={url}: access denied, wanted {wanted}")


@contextmanager
def server_access() -> Iterator[None]:
    """Give the code in this block access to a server of evalflows: that of `evalflows up`, or a temporary one.

    Prefect starts a temporary one if no API is configured. A user's own server and its settings stay as they are.
    """
    from prefect.settings import temporary_settings  # late: loading Prefect takes seconds

    with temporary_settings(_access()):
        yield


def _access() -> Mapping[Any, Any]:
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_SERVER_API_AUTH_STRING, get_current_settings

    settings = get_current_settings()
    if settings.api.url:
        secret = None if settings.api.auth_string else read_secret(settings.home, settings.api.url)
        return {PREFECT_API_AUTH_STRING: secret} if secret else {}
    if settings.server.api.auth_string is not None:  # the user's own choice
        return {PREFECT_API_AUTH_STRING: settings.server.api.auth_string.get_secret_value()}
    if settings.api.auth_string is not None:
        return {PREFECT_SERVER_API_AUTH_STRING: settings.api.auth_string.get_secret_value()}
    with _lock:
        if not _temporary and not _is_running():
            _temporary.update(_protected())
        return _temporary


def _is_running() -> bool:
    """Whether a flow of the program's own has already made Prefect start its temporary server, without a secret."""
    server = sys.modules.get("prefect.server.api.server")
    return server is not None and bool(server.SubprocessASGIServer().running)


def _protected() -> Mapping[Any, Any]:
    """Return settings with a secret, which from now on are also those of the program's other flows.

    The temporary server lives as long as the process, so flows that the program runs later need the secret too.
    """
    import prefect.context
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_SERVER_API_AUTH_STRING,
        PREFECT_SERVER_CORS_ALLOWED_ORIGINS,
    )

    secret = new_secret()
    settings: dict[Any, Any] = {
        PREFECT_API_AUTH_STRING: secret,
        PREFECT_SERVER_API_AUTH_STRING: secret,
        PREFECT_SERVER_CORS_ALLOWED_ORIGINS: NO_ORIGIN,
    }
    context = prefect.context.GLOBAL_SETTINGS_CONTEXT
    prefect.context.GLOBAL_SETTINGS_CONTEXT = prefect.context.SettingsContext(
        profile=context.profile, settings=context.settings.copy_with_update(updates=settings)
    )
    return settings
