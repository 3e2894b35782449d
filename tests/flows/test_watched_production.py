"""A scheduled trace evaluation that watches: the alarm, its automation's webhook, and the recovery."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from evalflows import evaluate_traces
from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.observations import day_of, write_observations
from evalflows.store.queries.incidents import incidents
from evalflows.store.records import derived_id
from evalflows.store.store import Store

Make = Callable[..., Any]
SPEC = {
    "name": "answers",
    "evaluators": [{"use": "length_between", "name": "short", "args": {"most": 10}}],
    "settle_s": 0,
    "watch": [{"threshold": "short", "minimum": 0.8}],
}


class Listener(BaseHTTPRequestHandler):
    received: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a webhook on loopback, and what it receives."""
    received: list[dict[str, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Bound", (Listener,), {"received": received}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alerts", received
    server.shutdown()
    thread.join()
    server.server_close()


def write_day(store: Store, make: Make, day: datetime, share: float, n: int = 50) -> None:
    """Write a day's traces, of which this share has a short answer."""
    rows = []
    for place in range(n):
        at = day + timedelta(minutes=place)
        answer = "yes" if place < share * n else "a rather long answer"
        attributes = json.dumps({"input.value": "is it?", "output.value": answer})
        trace = derived_id("trace", at.isoformat())
        of = {"trace_id": trace, "span_id": trace[:16], "day": day_of(at), "source": "otlp", "name": "answer"}
        rows.append(
            make("observations", **of, started_at=at, ended_at=at + timedelta(seconds=1), attributes=attributes)
        )
    write_observations(store, rows)


def await_length(received: list[Any], length: int) -> None:
    until = time.monotonic() + 30
    while len(received) < length and time.monotonic() < until:
        time.sleep(0.05)


def await_parameters(url: str, deployment: UUID) -> dict[str, Any]:
    """The parameters of the first run of a deployment, which an automation starts."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    from evalflows.flows.deployments import client_of

    until = time.monotonic() + 30
    with client_of(url) as client:
        while time.monotonic() < until:
            of_deployment = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
            if runs := client.read_flow_runs(deployment_filter=of_deployment):
                return runs[0].parameters
            time.sleep(0.1)
    return {}


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_an_alarm_calls_the_webhook_and_so_does_the_recovery(
    store: Store, make: Make, listener: tuple[str, list[dict[str, Any]]], prefect_api: dict[str, str]
) -> None:
    from evalflows.flows.alert_automation import automate_deployment, automate_webhook
    from evalflows.flows.deployments import client_of

    url, received = listener
    for _ in range(2):
        done = CliRunner().invoke(cli, ["alerts", "automate", "--webhook", url, "--name", "answers"])
        assert done.stdout == "automation 'evalflows alerts of answers: webhook' reacts to alerts\n", done.output
    with client_of(prefect_api["PREFECT_API_URL"]) as client:
        assert len(client.read_automations_by_name("evalflows alerts of answers: webhook")) == 1
        automate_webhook(client, url, evaluation="others")
        triage = client.create_deployment(client.create_flow_from_name("triage"), name="production")
        automate_deployment(client, "triage/production", evaluation="answers")
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=6)
    spec = TraceEvaluationSpec.model_validate(SPEC)
    for number, share in enumerate((0.9, 0.9, 0.4)):
        write_day(store, make, start + timedelta(days=number), share)
    evaluate_traces(spec)
    await_length(received, 1)
    assert [(one["event"], one["rule"], one["n"]) for one in received] == [("alarm", "threshold short", 50)]
    assert received[0]["text"].startswith(
        f"short 0.40 [0.26, 0.55] on {start + timedelta(days=2):%Y-%m-%d}, below 0.80"
    )
    assert received[0]["incident_id"] == incidents(store)[0].incident_id
    assert await_parameters(prefect_api["PREFECT_API_URL"], triage) == {"alert": received[0]}
    write_day(store, make, start + timedelta(days=3), 0.9)
    evaluate_traces(spec)
    await_length(received, 2)
    assert [one["event"] for one in received] == ["alarm", "recovered"]
    assert [incident.state for incident in incidents(store)] == ["recovered"]
    evaluate_traces(spec)
    assert len(received) == 2


@pytest.mark.usefixtures("prefect_api")
def test_what_cannot_be_automated_is_refused(prefect_api: dict[str, str]) -> None:
    from evalflows.flows.alert_automation import automate_deployment, automate_webhook
    from evalflows.flows.deployments import client_of

    with client_of(prefect_api["PREFECT_API_URL"]) as client:
        with pytest.raises(InputError, match=r"--webhook: got 'ftp', wanted a URL such as"):
            automate_webhook(client, "ftp://example.com")
        with pytest.raises(InputError, match=r"--deployment: got 'none/such', wanted FLOW/NAME of a deployment"):
            automate_deployment(client, "none/such")
