"""The history of the limiters that an experiment's calls went through."""

import os
import socket
from datetime import datetime

from evalflows.llm import loop
from evalflows.llm.caller import Endpoint
from evalflows.store.records import LimitRow, derived_id


def limit_rows(experiment_id: str, endpoints: list[Endpoint], since: datetime) -> list[LimitRow]:
    """Return the width of each endpoint's limiter: the state at `since`, and every change after it."""
    unique = {endpoint.name: endpoint for endpoint in endpoints}.values()
    return [row for endpoint in unique for row in _of_endpoint(experiment_id, endpoint, since)]


def _of_endpoint(experiment_id: str, endpoint: Endpoint, since: datetime) -> list[LimitRow]:
    process = f"{socket.gethostname()}:{os.getpid()}"
    changes = loop.call(endpoint.limiter.changes)
    before = [change for change in changes if change.at < since][-1:]
    return [
        LimitRow(
            limit_id=derived_id(experiment_id, endpoint.name, process, change.at.isoformat(), number),
            experiment_id=experiment_id,
            connection=endpoint.name,
            process=process,
            width=change.width,
            in_flight=change.in_flight,
            reason=change.reason,
            retry_after_s=change.retry_after_s,
            changed_at=change.at,
        )
        for number, change in enumerate([*before, *(change for change in changes if change.at >= since)])
    ]
