"""Where people look at what a run did: the address of the dashboard, and of Prefect's UI. Prefect is not loaded."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from evalflows.execution.server.home import Home, hold, home_root, is_locked
from evalflows.specs.safe_text import print_note

DASHBOARD_URL = "EVALFLOWS_DASHBOARD_URL"
"""The environment variable that names the dashboard that others see."""

PREFECT_CLOUD = ("https://api.prefect.cloud/api", "https://app.prefect.cloud")
"""Where the API of Prefect Cloud is, and its UI."""

_PLAIN = re.compile(r"[\w.~:/%\[\]-]+", re.ASCII)
"""Addresses that Markdown takes as they are."""


def dashboard_url(store_root: str) -> str | None:
    """Return the address of a store's dashboard: EVALFLOWS_DASHBOARD_URL, else one that runs on this machine, or None.

    A variable that is no address is reported on standard error: a run does not fail for its links.
    """
    if given := os.environ.get(DASHBOARD_URL):
        if (url := _web_address(given)) is not None:
            return url
        print_note(f"{DASHBOARD_URL}: got {given!r}, wanted an address such as https://evals.example.com; no links")
    note = _note(store_root)
    if is_locked(note):
        with suppress(OSError, UnicodeError):
            return _web_address(note.read_text(encoding="utf-8"))
    return None


@contextmanager
def noted_dashboard(store_root: str, url: str) -> Iterator[None]:
    """Note for other processes that a dashboard of the store is at this address, as long as the block lasts.

    The note counts while this process holds its lock, whatever ends the process. If there is a note of another
    dashboard of the store, or none can be written, this one is not noted.
    """
    note, file = _note(store_root), None
    with suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = hold(note)
    if file is None:
        yield
        return
    with file:
        file.truncate(0)
        file.write(url.encode())
        file.flush()
        yield


def prefect_ui() -> str | None:
    """Return the address of Prefect's UI: from PREFECT_UI_URL or PREFECT_API_URL, else that of the local server."""
    if given := os.environ.get("PREFECT_UI_URL"):
        return _web_address(given)
    if api := os.environ.get("PREFECT_API_URL"):
        return _web_address(_ui_of(api))
    server = Home.here().find()
    return server.ui if server else None


def _ui_of(api: str) -> str:
    """Return the UI's address as Prefect derives it from its API's."""
    cloud_api, cloud_ui = PREFECT_CLOUD
    if api.startswith(f"{cloud_api}/"):
        return (
            api.replace(cloud_api, cloud_ui).replace("/accounts/", "/account/").replace("/workspaces/", "/workspace/")
        )
    return api.rstrip("/").removesuffix("/api")


def _web_address(text: str) -> str | None:
    """Return an address of http or https without a name and password, or None."""
    with suppress(ValueError):
        parts = urlsplit(text)
        is_ours = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        if is_ours and _PLAIN.fullmatch(text):
            return text.rstrip("/")
    return None


def _note(store_root: str) -> Path:
    name = hashlib.sha256(store_root.encode()).hexdigest()[:16]
    return home_root() / "dashboards" / name
