"""The commands for incidents and windows."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from alarmed import SPEC, alarmed_production
from click.testing import CliRunner, Result
from made_windows import IDENTITY, NAME, Production

from evalflows.cli.main import cli
from evalflows.store.queries.incidents import incidents
from evalflows.store.store import Store

Make = Callable[..., Any]


def evalflows(*arguments: str, code: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, arguments)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def production(store: Store, make: Make) -> Production:
    """Three days, the last of which alarmed."""
    return alarmed_production(store, make)


def test_an_incident_is_listed_shown_and_acknowledged(store: Store, production: Production) -> None:
    (incident,) = incidents(store)
    listed = evalflows("alerts", "ls").stdout
    assert incident.incident_id in listed and "open" in listed
    assert "accuracy 0.599 [0.527, 0.668] on 2026-10-03, below 0.750; n 197, 3" in " ".join(listed.split())
    shown = evalflows("alerts", "show", incident.incident_id[:24]).stdout
    assert f"next: evalflows alerts ack {incident.incident_id}" in shown
    acknowledged = evalflows("alerts", "ack", incident.incident_id, "--by", "ada", "--note", "prompt rolled back")
    assert acknowledged.stdout == f"{incident.incident_id}: acknowledged by ada: prompt rolled back\n"
    listed = " ".join(evalflows("alerts", "ls").stdout.split())
    assert "acknowledged by ada: prompt rolled back" in listed
    document = json.loads(evalflows("alerts", "show", incident.incident_id, "--format", "json").stdout)
    assert (document["state"], document["acknowledged_by"]) == ("acknowledged", "ada")
    assert [event["event"] for event in document["events"]] == ["alarm", "acknowledged"]
    evalflows("alerts", "ack", incident.incident_id, "--by", "ada", "--close")
    assert evalflows("alerts", "ls").stdout == "no incident is open; 1 are over: evalflows alerts ls --all\n"
    (closed,) = json.loads(evalflows("alerts", "ls", "--all", "--format", "json").stdout)["incidents"]
    assert (closed["state"], closed["ended_code"]) == ("closed", "closed_by_person")
    refused = evalflows("alerts", "ack", incident.incident_id, code=2).stderr
    assert (
        refused == f"evalflows: incident {incident.incident_id}: is closed, wanted an open or acknowledged incident\n"
    )


def test_without_incidents_the_commands_say_so(store: Store) -> None:
    assert evalflows("alerts", "ls").stdout.startswith("no incidents: the watch rules")
    assert json.loads(evalflows("alerts", "ls", "--format", "json").stdout) == {"incidents": []}
    assert "wanted an id of `evalflows alerts ls`" in evalflows("alerts", "show", "none", code=2).stderr
    assert "wanted one of --webhook and --deployment" in evalflows("alerts", "automate", code=2).stderr


@pytest.mark.slow
def test_windows_are_printed_in_80_columns(store: Store, make: Make, production: Production) -> None:
    row = make(
        "watermarks",
        batch_id="batch-9",
        evaluation_id=IDENTITY,
        name=NAME,
        scope="traces",
        evaluators='[{"name":"accuracy","version":"v1"}]',
        spec=SPEC.model_dump_json(),
        recorded_at=production.at.replace(year=2027),
    )
    store.append("watermarks", IDENTITY, "last", [row])
    printed = evalflows("windows", NAME).stdout
    assert max(map(len, printed.splitlines())) <= 80
    assert "2026-10-03    197  0.599 [0.527, 0.668]    1.5%" in printed
    document = json.loads(evalflows("windows", NAME, "--metric", "accuracy", "--days", "1", "--format", "json").stdout)
    (window,) = document["windows"]
    assert (window["n"], window["missing"], window["slice"], window["cost_usd"]) == (197, 3, "all", None)
    assert window["window_start"] == "2026-10-03T00:00:00+00:00"
    assert "no windows of 'production' with such a metric" in evalflows("windows", NAME, "--metric", "other").stdout
    assert "wanted one of: production" in evalflows("windows", "other", code=2).stderr
