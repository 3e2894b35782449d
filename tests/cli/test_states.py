"""What `ls` and `show` say of runs that are under way, and of those that were killed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from evalflows import run
from evalflows.cli.main import cli
from evalflows.dashboard.experiments import experiments_page
from evalflows.dashboard.links import Links
from evalflows.dashboard.rendering import Query, Site
from evalflows.specs import ExperimentSpec
from evalflows.store import Store
from evalflows.store.queries.spending import spent_by_group
from evalflows.store.records import ExperimentRow, now
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.spool import Spool

SECOND = timedelta(seconds=1)
HOLDS = """
import sys, time
from evalflows.store import Store
from evalflows.store.leases import hold_lease
with hold_lease(Store(sys.argv[1]), sys.argv[2], "work", wait=False):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def begun(without_prefect: None) -> ExperimentRow:
    """An experiment of three examples that has been started and not finished, and whose process is gone."""
    rows = [{"inputs": {"q": str(i)}, "outputs": {"a": "x"}, "metadata": {"said": "x"}} for i in range(3)]
    fields = {"name": "app", "dataset": {"rows": rows}, "evaluators": ["exact_match"]}
    target = {"kind": "recorded", "column": "said"}
    (identity,) = run(ExperimentSpec.model_validate(fields | {"targets": [target]}))
    store = Store()
    (row,) = store.read("experiments", identity)
    store.reopen(identity, tuple(reversed(EXPERIMENT_TABLES)))
    started: ExperimentRow = replace(row, state="running", ended_at=None, recorded_at=row.recorded_at + SECOND)
    store.append("experiments", identity, "start", [started])
    return started


def said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def states(row: ExperimentRow) -> list[str]:
    """The experiment's state as `evalflows sql` sees it."""
    return said("sql", f"select state from experiments where experiment_id = '{row.experiment_id}'").split()[1:]


@pytest.mark.slow
def test_what_nobody_works_on_was_interrupted_and_what_somebody_works_on_is_running(begun: ExperimentRow) -> None:
    identity = begun.experiment_id
    assert states(begun) == ["interrupted"]
    assert re.search(rf"app .*interrupted .*{identity}", said("ls"))
    assert said("show", identity).endswith(f"next: evalflows resume {identity}")
    (listed,) = json.loads(said("ls", "--format", "json"))
    assert (listed["kind"], listed["state"], listed["answered"]) == ("experiment", "interrupted", 3)
    shown = json.loads(said("show", identity, "--format", "json"))
    assert {"kind": "experiment", "gates": {}, **shown["experiments"][0]} == listed
    assert shown["next"] == f"evalflows resume {identity}"
    command = [sys.executable, "-P", "-c", HOLDS, Store().layout.root, begun.run_group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert states(begun) == ["running"]
        assert re.search(rf"app .*running .*{identity}", said("ls"))
        text = said("show", identity)
        assert "app running: 3 of 3 answered" in text
        assert text.endswith(f"next: evalflows show {identity} # it is running"), "resume would be refused"
        process.kill()


def test_the_answers_that_a_killed_run_has_in_its_spool_count(store: Store, make: Callable[..., Any]) -> None:
    fields = {"experiment_id": "exp-1", "name": "app", "state": "running", "n_examples": 3, "repetitions": 1}
    store.append("experiments", "exp-1", "start", [make("experiments", **fields)])
    with Spool(store, "exp-1", "p") as spool:
        for run, status in enumerate(("ok", "ok", "failed")):
            row = make("outputs", run_id=f"{run}", experiment_id="exp-1", example_id="a", repetition=run, status=status)
            spool.add("outputs", row)
        assert "app interrupted 2/3" in said("ls")
        assert "app interrupted: 2 of 3 answered" in said("show", "exp-1")


def test_what_a_call_without_usage_has_cost_is_said_once(store: Store, make: Callable[..., Any]) -> None:
    fields = {"experiment_id": "exp-1", "name": "app", "state": "completed", "calls": 2, "calls_cached": 0}
    store.append("experiments", "exp-1", "start", [make("experiments", **fields)])
    call = {"experiment_id": "exp-1", "connection": "openai", "model": "m"}
    costs = [{"cost_usd": 0.5, "status": "ok"}, {"estimated_usd": 0.25, "status": "failed"}]
    store.append("calls", "exp-1", "p", [make("calls", call_id=str(n), **call, **one) for n, one in enumerate(costs)])
    shown = said("show", "exp-1")
    assert "2 model calls, 0 from the ledger, about 0.7500 USD" in shown and "unknown" not in shown
    assert "0.7500 USD spent, of which 0.2500 estimated from the texts of 1 call," in shown


def test_what_an_application_has_reported_is_counted_though_requests_failed(
    store: Store, make: Callable[..., Any]
) -> None:
    fields = {"experiment_id": "exp-1", "run_group": "group-1", "name": "app", "target_kind": "http", "n_examples": 3}
    store.append("experiments", "exp-1", "start", [make("experiments", **fields, state="completed", ended_at=now())])
    common = {"experiment_id": "exp-1", "example_id": "a", "calls": None, "calls_cached": None}
    answers: list[dict[str, Any]] = [{"cost_usd": 0.25}, {"cost_usd": 0.5}, {"cost_usd": None}]  # one after a timeout
    rows = [make("outputs", run_id=str(n), repetition=n, status="ok", **common, **one) for n, one in enumerate(answers)]
    free = make("outputs", run_id="3", repetition=3, status="failed", error_kind="server_error", **common)
    store.append("outputs", "exp-1", "p", [*rows, free])
    request = {"experiment_id": "exp-1", "kind": "application", "connection": "application", "status": "failed"}
    lost = [make("calls", call_id=str(n), **request, estimated_usd=usd) for n, usd in enumerate((0.5, None))]

    def said_to_be(text: str) -> set[float]:
        """What each place says was spent; the pages and `show` share the text."""
        listed = str(experiments_page(Site(store=store, links=Links()), Query({})).body)
        assert f">{text.removesuffix(' USD')}<" in listed
        shown = said("show", "exp-1", "--all")
        assert text in shown and "not recorded" not in shown
        (experiment,) = json.loads(said("show", "exp-1", "--format", "json"))["experiments"]
        (known,) = store.query("select cost_known_usd from cost_and_latency where source = 'all'")[0]
        assert f", of which {experiment['spent_usd'] - known:.4f} estimated from the highest reported cost" in shown
        return {experiment["spent_usd"], spent_by_group(store, "group-1").usd}

    assert said_to_be("about 1.2500 USD") == {1.25}
    store.append("calls", "exp-1", "p", lost)
    assert said_to_be("at least 1.7500 USD") == {1.75}, "nothing is known of one"


def test_ls_lists_what_is_wanted(kept: str) -> None:
    for options, listed in (
        ((), True),
        (("--name", "ap"), True),
        (("--name", "pp"), False),
        (("--tag", "nightly"), True),
        (("--tag", "other"), False),
        (("--dataset", "other"), False),
        (("--since", "2026-01-01"), True),
        (("--since", "2999-12-31 23:59"), False),
        (("--name", "app", "--tag", "nightly", "--dataset", "faq"), True),
    ):
        assert (kept in said("ls", *options)) is listed, options
        assert listed or said("ls", *options) == "no experiments of that kind"


@pytest.fixture
def kept(store: Store, make: Callable[..., Any]) -> str:
    """An experiment with a tag on a dataset with a name."""
    started = datetime(2026, 11, 1, tzinfo=UTC)
    row = make(
        "experiments", experiment_id="exp-1", name="app", tags=["nightly"], dataset_name="faq", started_at=started
    )
    store.append("experiments", "exp-1", "start", [row])
    return "exp-1"


def test_explain_of_a_gate_of_several_specs_says_whose_it_is(store: Store, make: Callable[..., Any]) -> None:
    for number, spec in enumerate(("bot", "rag")):
        identity = f"exp-{number}"
        row = make("experiments", experiment_id=identity, name=f"{spec}-new", spec=json.dumps({"name": spec}))
        store.publish("experiments", identity, [row])
        decided = {"decision_id": f"dec-{number}", "gate": "release", "candidate_experiment_id": identity}
        at = datetime(2026, 11, 1 + number, tzinfo=UTC)
        row = make("decisions", **decided, conclusion="PASS", decided_at=at, recorded_at=at, reasons="[]", policy="{}")
        store.publish("decisions", f"dec-{number}", [row])
    other = "bot has a gate of that name, too: evalflows explain bot"
    assert said("explain", "release").startswith(f"the newest decision of a gate 'release': of rag-new; {other} PASS")
    assert said("explain", "bot").startswith("PASS gate release: bot-new")
