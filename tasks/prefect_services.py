"""End the threads by which Prefect sends events and logs: at exit they would try to reach a lost server for minutes."""

import asyncio
import logging
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any

from prefect._internal.concurrency.services import _active_services

ENDED_WITHIN_S = 5.0

_log = logging.getLogger("prefect._internal.concurrency")


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
