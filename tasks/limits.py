"""The history of the limiters that an experiment's calls went through."""

import os
import socket
from datetime import datetime

from llm import loop
from llm.caller import Endpoint
from store.records import LimitRow, derived_id


def limit_rows(experiment_id: str, endpoints: list[Endpoint], since: datetime) -> list[LimitRow]:
    """How wide each endpoint's limiter was from `since` on: the state then, and every change."""
    each = {endpoint.name: endpoint for endpoint in endpoints}.values()
    return [row for endpoint in each for row in _of_endpoint(experiment_id, endpoint, since)]


def _of_endpoint(experiment_id: str, endpoint: Endpoint, since: datetime) -> list[LimitRow]:
    process = f"{socket.gethostname()}:{os.getpid()}"
    changes = loop.call(endpoint.limiter.told_history)
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
