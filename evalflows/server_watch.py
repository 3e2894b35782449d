"""Notice that the Prefect server is lost while a flow runs, and end the run: Prefect's client and threads would try
for minutes.

A server that is back within LOST_AFTER_S does not harm the run: calls go on, and what Prefect has to report waits.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import httpx
from prefect._internal.concurrency.services import _active_services
from prefect.context import SettingsContext, get_settings_context
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker, emit_events_to_cloud
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, Settings, get_current_settings

from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError

ENDED_WITHIN_S = 5.0

_log = logging.getLogger("prefect._internal.concurrency")

LOST_AFTER_S = 20.0
"""Seconds without any answer after which a server is lost. A restart takes 5 to 15."""

INTERVAL_S = 1.0

RETRIES = 4
"""Retries of Prefect's client: the last one is made after about 30 seconds, when the server is known to be lost."""


@contextmanager
def change_settings(
    updates: Mapping[Any, Any] | None = None, *, set_defaults: Mapping[Any, Any] | None = None
) -> Iterator[Settings]:
    """Run the block under other settings, and yield these. The arguments are those of `with_changes`."""
    context = get_settings_context()
    settings = with_changes(context.settings, updates, set_defaults=set_defaults)
    with SettingsContext(profile=context.profile, settings=settings):
        yield settings


def with_changes(
    given: Settings, updates: Mapping[Any, Any] | None = None, *, set_defaults: Mapping[Any, Any] | None = None
) -> Settings:
    """Return settings with changes. Prefect's own function reads all sources of all settings again.

    Args:
        given: The settings before.
        updates: Values by setting, of its type: they are not validated, and no other settings are derived from them.
        set_defaults: Values for settings that nobody has set.
    """
    settings = given.model_copy()
    for setting, value in (set_defaults or {}).items():
        group, name = _place(settings, setting)
        if name not in group.model_fields_set:
            setattr(group, name, value)
    for setting, value in (updates or {}).items():
        setattr(*_place(settings, setting), value)
    return settings


def _place(settings: Settings, setting: Any) -> tuple[Any, str]:
    """Return the group of a setting and its name there. The groups on the way are copies: those given stay as they are.

    A copy of all groups takes 30 ms.
    """
    *groups, name = setting.accessor.split(".")
    group: Any = settings
    for each in groups:
        copied = getattr(group, each).model_copy()
        setattr(group, each, copied)
        group = copied
    return group, name


def end_services() -> None:
    """Cancel all services of this process and drop what they have not sent. New ones start when they are needed."""
    was_disabled, _log.disabled = _log.disabled, True  # each would report its end as an error on stderr
    try:
        wait_for([ending for service in list(_active_services) if (ending := _cancelled(service))], ENDED_WITHIN_S)
    finally:
        _log.disabled = was_disabled


def _cancelled(service: Any) -> "Future[None] | None":
    """Begin to cancel a service; None if it does not run."""
    loop, task = service._loop, service._task
    if loop is None or task is None or loop.is_closed():
        return None

    async def cancel() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return asyncio.run_coroutine_threadsafe(cancel(), loop)


class ServerLostError(Exception):
    """The Prefect server has not answered for LOST_AFTER_S."""


@dataclass(slots=True)
class WatchedServer:
    """The Prefect server of the flows in a block."""

    url: str
    settings: Settings  # of the flow
    owners: set[str] = field(default_factory=set)
    is_answered: bool = True
    lost: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Ask the server until the run has ended or the server is lost; then let Prefect's client try no more."""
        answered_at = time.monotonic()
        while not self.ended.wait(INTERVAL_S):
            self.is_answered = answers(self.url)
            if self.is_answered:
                answered_at = time.monotonic()
            elif time.monotonic() - answered_at >= LOST_AFTER_S:
                self.settings.client.max_retries = 0  # threads that already run with these settings read it again
                self.lost.set()
                return

    def raise_if_lost(self) -> None:
        """Raise ServerLostError if it is lost."""
        if self.lost.is_set():
            raise ServerLostError(self.url)

    def error(self) -> IncompleteError:
        first = min(self.owners, default=None)
        then = (
            f"finished calls are kept, and {hints.resume(first).code} continues" if first else "nothing was called yet"
        )
        return IncompleteError(f"the Prefect server at {self.url} no longer answers; {then}", sorted(self.owners))


@contextmanager
def server_watched() -> Iterator[WatchedServer | None]:
    """Watch the server of the flows in this block. Raise IncompleteError if it is lost and they end with an error.

    Yield it, to be told which experiments or comparisons they work on: the error names them.
    """
    url = get_current_settings().api.url
    if url is None:
        yield None
        return
    patience = {PREFECT_CLIENT_MAX_RETRIES: RETRIES, PREFECT_API_REQUEST_TIMEOUT: LOST_AFTER_S}
    with change_settings(set_defaults=patience) as settings, _events_wait_for_the_server():
        watch = WatchedServer(url, settings)
        threading.Thread(target=watch.watch, name="evalflows-server-watch", daemon=True).start()
        try:
            yield watch
        except Exception as error:
            if not watch.lost.is_set() and not isinstance(error, httpx.TransportError):
                raise
            raise watch.error() from error
        finally:
            watch.ended.set()
            if not watch.is_answered:
                end_services()


@contextmanager
def report_if_possible(server: Any) -> Iterator[None]:
    """Skip what the block reports to the server if that does not answer; it is reported again soon."""
    try:
        with change_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            yield
    except httpx.TransportError:
        if server is not None:
            server.raise_if_lost()


def answers(url: str) -> bool:
    """Return whether a server answers. How it answers does not matter, and a busy one has time."""
    try:
        with urlopen(f"{url.rstrip('/')}/health", timeout=LOST_AFTER_S):
            return True
    except HTTPError:
        return True
    except (OSError, ValueError):
        return False


@contextmanager
def _events_wait_for_the_server() -> Iterator[None]:
    """Let events wait for the server: by default Prefect drops one after ten seconds, with an error on stderr."""
    if emit_events_to_cloud():
        yield
        return
    EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=int(2 * LOST_AFTER_S))
    try:
        yield
    finally:
        EventsWorker.set_client_override(None)
