"""Runs whose endpoint fails, and what the store says of them."""

import re
import threading
from typing import Any

import pytest
from catalog_rows import one
from endpoint import Endpoint, Reply, Request, completion, error

from evalflows import run
from evalflows.specs import ExperimentSpec, IncompleteError
from evalflows.store import Store

N = 100
IN_FLIGHT = 4
WORKERS = 16
"""Items under way at once, of which some wait for one of the IN_FLIGHT places."""
WINDOW = 20
ROWS = [{"id": f"q{i}", "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]
PRICES = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 10.0}
COST = (10 * 1.0 + 5 * 10.0) / 1e6
"""USD that an answer of the endpoint costs."""


class Service:
    """Answers under the requested model's name, fails after `breaks_after` requests, and recovers with `mend`."""

    def __init__(self, *, breaks_after: int | None = None, fault: Reply | None = None) -> None:
        self.breaks_after, self.fault = breaks_after, fault or error(500, "down")
        self.asked = 0
        self._lock = threading.Lock()

    def mend(self) -> None:
        self.breaks_after = None

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            self.asked += 1
            if self.breaks_after is not None and self.asked > self.breaks_after:
                return self.fault
        reply = completion("CORRECT")
        return Reply(reply.body | {"model": f"{request['model']}-1"})


def connection(endpoint: Endpoint, **changes: Any) -> dict[str, Any]:
    fields = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
    return fields | {"attempts": 1} | changes


def spec(connections: dict[str, Any], **changes: Any) -> ExperimentSpec:
    """An experiment whose judge calls a model and whose target does not."""
    fields: dict[str, Any] = {
        "name": "failing",
        "run_key": "k",
        "dataset": {"rows": ROWS},
        "targets": [{"kind": "python", "function": "judges:upper"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "judge"}],
        "connections": connections,
        "breaker_window": WINDOW,
        "breaker_pause_s": 600.0,
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def chat(**changes: Any) -> dict[str, Any]:
    """Changes to the spec: the target calls the service, and a rule judges."""
    target = {"kind": "chat", "connection": "judge", "user": "{question}"}
    return {"targets": [target | changes], "evaluators": ["contains"]}


def incomplete(asked: ExperimentSpec, resume: str | None = None) -> str:
    """Run an experiment that stays incomplete, and return the reason in its row."""
    with pytest.raises(IncompleteError) as caught:
        run(asked, resume)
    state, reason, name, identity = one("select state, reason, name, experiment_id from experiments")
    begin = re.escape(f"experiment {name!r} ({identity}): {reason}; ")
    line = rf"{begin}`evalflows resume {identity}( --set \S+)?` continues"
    assert state == "incomplete" and re.fullmatch(line, str(caught.value))
    assert "\n" not in reason
    return str(reason)


def complete(asked: ExperimentSpec, resume: str | None = None) -> None:
    (identity,) = run(asked, resume)
    assert one("select state, reason from experiments") == ("completed", None)
    assert all(Store().is_sealed(table, identity) for table in ("outputs", "judgements", "calls", "experiments"))
