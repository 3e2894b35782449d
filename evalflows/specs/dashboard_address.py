"""Addresses of the dashboard: each that runs notes its own for other processes of this machine, by its store."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from evalflows.specs.escaping import print_note
from evalflows.specs.file_locks import hold, is_locked
from evalflows.specs.home import home_root

DASHBOARD_URL = "EVALFLOWS_DASHBOARD_URL"
"""The environment variable that names the dashboard that others see."""

_PLAIN = re.compile(r"[\w.~:/%\[\]-]+", re.ASCII)
"""Addresses that Markdown takes as they are."""


def dashboard_url(store_root: str) -> str | None:
    """Return the address of a store's dashboard: EVALFLOWS_DASHBOARD_URL, else one that runs on this machine, or None.

    A variable that is no address is reported on standard error: a run does not fail for its links.
    """
    if given := os.environ.get(DASHBOARD_URL):
        if (url := web_address(given)) is not None:
            return url
        print_note(f"{DASHBOARD_URL}: got {given!r}, wanted an address such as https://evals.example.com; no links")
    note = _note(store_root)
    if is_locked(note):
        with suppress(OSError, UnicodeError):
            return web_address(note.read_text(encoding="utf-8"))
    return None


@contextmanager
def note_dashboard(store_root: str, url: str) -> Iterator[None]:
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


def web_address(text: str) -> str | None:
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
