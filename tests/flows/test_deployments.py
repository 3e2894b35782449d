"""What is deployed, on a real server, and what becomes of a run of it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner
from endpoint import Endpoint, Reply, serving
from prefect.settings import Settings
from running_up import MARK, Up, ask, prefect_yaml, running_up, until

from evalflows.cli.main import cli
from evalflows.flows.deployments import (
    client_of,
    comparison_spec_of,
    prefect_file,
    refuse_those_of_others,
    spec_of,
    trace_evaluation_spec_of,
)
from evalflows.flows.deployments import deploy as deploy_file
from evalflows.prefect_server import SERVER_SETTINGS
from evalflows.specs.comparison import ComparisonSpec, load_comparison
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment
from evalflows.specs.permitted import DEPLOYED_FROM, check_deployed_from
from evalflows.specs.retention import load_retention
from evalflows.specs.traces import TraceEvaluationSpec, load_trace_evaluation

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data" / "experiments" / "demo.yaml"
DEMO_PAIRS = ROOT / "data" / "comparisons" / "demo.yaml"
PRODUCTION = ROOT / "data" / "trace_evaluations" / "production.yaml"
RETENTION = ROOT / "data" / "retention" / "default.yaml"
SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:upper"}],
    "evaluators": ["exact_match"],
}
PREFECT_YAML = prefect_yaml("mine")


def deploy(folder: Path, *options: str) -> list[str]:
    """Run `evalflows deploy` in a folder. Returns the lines it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(cli, ["deploy", *options])
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.removeprefix("deployed").strip() for line in done.stdout.splitlines()]


def deployment(environment: dict[str, str], name: str) -> dict[str, Any]:
    found = ask(environment["PREFECT_API_URL"], "/deployments/filter", deployments={"name": {"any_": [name]}})
    assert len(found) == 1
    return dict(found[0])


@pytest.mark.slow
def test_what_ships_is_deployed_and_scheduled_in_place_of_what_was_registered_elsewhere(
    prefect_api: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "prefect.yaml"
    scheduled = PREFECT_YAML.replace("name: mine", "name: nightly") + "    schedules: [{cron: 0 3 1 * *}]\n"
    clone.write_text(scheduled + "  - {name: x, entrypoint: 'theirs.py:flow'}\n")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with client_of(prefect_api["PREFECT_API_URL"]) as client:
        assert deploy_file(client, prefect_file(tmp_path)) == ["run_experiment/nightly (0 3 1 * * UTC)"], "not theirs"
        with pytest.raises(InputError, match=rf"'nightly' was registered from \S+:{tmp_path}, wanted another name"):
            refuse_those_of_others(client, prefect_file(ROOT))
        monkeypatch.setenv(DEPLOYED_FROM, prefect_file(tmp_path).origin)
    check_deployed_from(tmp_path)
    with pytest.raises(InputError, match=rf"registered from {tmp_path}, wanted a worker that runs there, got one in "):
        check_deployed_from(ROOT)
    before = deployment(prefect_api, "nightly")

    said = deploy(ROOT, "--replace")
    experiments = ["run_experiment/demo", "run_experiment/nightly (0 3 * * * UTC)"]
    production = "evaluate_traces/production (5 * * * * UTC, paused)"
    retention = "apply_retention/retention (30 4 * * * UTC, paused)"
    others = [retention, "compare_experiments/compare", production, "gate_release/gate"]
    names = [
        *others,
        "resume_batches/batches (*/15 * * * * UTC, paused)",
        "review_weights/weights (0 6 1 */3 * UTC, paused)",
        *experiments,
        f"from {ROOT / 'prefect.yaml'}",
    ]
    assert said == names
    demo, nightly, compare, watched, retained = (
        deployment(prefect_api, name) for name in ("demo", "nightly", "compare", "production", "retention")
    )
    for one, load, path in (
        (demo, load_experiment, DEMO),
        (compare, load_comparison, DEMO_PAIRS),
        (watched, load_trace_evaluation, PRODUCTION),
        (retained, load_retention, RETENTION),
    ):
        given = load(path)
        assert type(given).model_validate(one["parameters"]["spec"]) == given
    filled_in = ExperimentSpec.model_fields.keys() - {"matrix"}  # whose cells are targets
    assert demo["parameters"]["spec"].keys() == filled_in, "a field would be empty in the form"
    night = ExperimentSpec.model_validate(nightly["parameters"]["spec"])
    assert [target.connection for target in night.targets] == ["local", "local"], "it would cost something"
    assert {evaluator.connection for evaluator in night.evaluators} == {None} and night.compare is None
    assert [one["active"] for one in retained["schedules"]] == [False]
    assert (nightly["id"], len(nightly["schedules"])) == (before["id"], 1)

    def due() -> list[dict[str, Any]]:
        one = {"id": {"any_": [nightly["id"]]}}
        return list(ask(prefect_api["PREFECT_API_URL"], "/flow_runs/filter", deployments=one))

    runs = until(due, 60)
    assert {run["state"]["name"] for run in runs} == {"Scheduled"}
    assert all("T03:00:00" in run["expected_start_time"] for run in runs)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, prefect_environment: dict[str, str]) -> Iterator[Up]:
    """A worker in a user's folder, which uses the API of the tests' server."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "rows.jsonl").write_text('{"inputs": {"question": "q"}, "outputs": {"answer": "Q"}}\n')
    (folder / "mine.py").write_text("def upper(question):\n    return question.upper()\n")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "prefect.yaml").write_text(PREFECT_YAML)
    with running_up(folder, environment=prefect_environment) as one:
        yield one


def run_and_watch(environment: dict[str, str], *parameters: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefect", "deployment", "run", "run_experiment/mine", "--watch", *parameters]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)


@pytest.mark.soak
def test_a_run_that_completes_ends_the_command_well(up: Up, prefect_environment: dict[str, str]) -> None:
    done = run_and_watch(prefect_environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'Completed'" in done.stdout


@pytest.mark.slow
def test_a_failed_gate_fails_the_run_whose_typed_name_is_kept(up: Up, prefect_environment: dict[str, str]) -> None:
    rows = [{"inputs": {"question": f"q{n}"}, "outputs": {"answer": "no"}} for n in range(20)]
    gate = {"name": "release", "thresholds": {"exact_match": 0.9}}
    spec = SPEC | {"name": "gated", "dataset": {"rows": rows}, "evaluators": [{"use": "exact_match"}], "gates": [gate]}
    done = run_and_watch(prefect_environment, "--flow-run-name", "prompt 12", "--params", json.dumps({"spec": spec}))
    assert done.returncode == 1, done.stdout + done.stderr
    url = prefect_environment["PREFECT_API_URL"]
    failed = {"state": {"type": {"any_": ["FAILED"]}}}
    (run,) = ask(url, "/flow_runs/filter", flow_runs=failed, sort="START_TIME_DESC", limit=1)
    assert run["name"] == "prompt 12"
    said = "gate release: gated: FAIL: exact_match"
    assert said in run["state"]["message"]
    logs = ask(url, "/logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}})
    assert sum(log["message"].startswith(said) for log in logs) == 1
    pages = ask(url, "/artifacts/filter", artifacts={"flow_run_id": {"any_": [run["id"]]}})
    assert {"decision", "result"} <= {page["key"] for page in pages}


@pytest.mark.soak
def test_a_run_sends_no_variable_of_the_worker_to_an_address_of_its_spec(
    up: Up, prefect_environment: dict[str, str]
) -> None:
    with serving(Endpoint(answer=lambda _: Reply({"text": "A."}))) as endpoint:
        target = {"kind": "http", "url": endpoint.base_url, "headers": {"Authorization": f"Bearer ${{{MARK}}}"}}
        spec = SPEC | {"targets": [target], "evaluators": [{"use": "json_valid"}]}
        done = run_and_watch(prefect_environment, "--params", json.dumps({"spec": spec}))
        assert endpoint.calls == 0
    assert done.returncode == 1, done.stdout + done.stderr
    failed = {"state": {"type": {"any_": ["FAILED"]}}}  # scheduled runs would sort first
    url = prefect_environment["PREFECT_API_URL"]
    runs = ask(url, "/flow_runs/filter", flow_runs=failed, sort="START_TIME_DESC", limit=1)
    assert f"the environment variable {MARK} may not be sent" in runs[0]["state"]["message"]


def test_a_step_reads_a_spec_whole_and_changed() -> None:
    for read, path, change, model in (
        (spec_of, DEMO, "repetitions=3", ExperimentSpec),
        (comparison_spec_of, DEMO_PAIRS, "seed=3", ComparisonSpec),
        (trace_evaluation_spec_of, PRODUCTION, "max_items=3", TraceEvaluationSpec),
    ):
        spec = read(str(path), [change])["spec"]
        assert spec[change.partition("=")[0]] == 3
        filled_in = model.model_fields.keys() - {"matrix"}  # whose cells are targets
        assert spec.keys() == filled_in, "a field would be empty in the form"
    with pytest.raises(InputError, match=r"demo\.yaml: seeds: no such field"):
        comparison_spec_of(str(DEMO_PAIRS), ["seeds=3"])


def test_the_parts_of_the_demo_fit_together() -> None:
    demo, judge, pairs = (
        load_experiment(DEMO),
        load_experiment(DEMO.with_name("demo-judge.yaml")),
        load_comparison(DEMO_PAIRS),
    )
    assert judge.targets == demo.targets
    assert judge.dataset == demo.dataset.model_copy(update={"sample": judge.dataset.sample}), "part of the same sample"
    assert judge.dataset.sample is not None and judge.dataset.sample < (demo.dataset.sample or 0)
    assert pairs.experiments == [f"{demo.name}-{target.name}" for target in demo.targets]


def test_the_prefect_yaml_in_the_docs_is_one_and_a_bad_one_is_told_in_a_line(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "guides" / "deployments.md").read_text(), flags=re.S)
    (tmp_path / "prefect.yaml").write_text(block)
    assert prefect_file(tmp_path).deployments == ["run_experiment/support-bot"]
    registered = SimpleNamespace(name="support-bot", job_variables={"env": {DEPLOYED_FROM: "elsewhere:/x"}})
    with pytest.raises(InputError, match="'support-bot' was registered from elsewhere:/x, wanted another name"):
        refuse_those_of_others(Mock(**{"read_deployment_by_name.return_value": registered}), prefect_file(tmp_path))
    wanted = "wanted deployments, each with a name, an entrypoint and a work_pool"
    for text, message in (("deployments: [", "not YAML"), ("deployments: [{name: a}]", wanted), ("[]", wanted)):
        (tmp_path / "prefect.yaml").write_text(text)
        with pytest.raises(InputError, match=message):
            prefect_file(tmp_path)


def test_every_setting_of_the_server_is_one_of_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVER_SETTINGS.items():
        monkeypatch.setenv(name, value)
    known = Settings().to_environment_variables(include_secrets=False)
    found = {name: known.get(name, "").removesuffix(".0") for name in SERVER_SETTINGS}
    assert {name: text.lower() for name, text in found.items()} == {
        n: text.lower() for n, text in SERVER_SETTINGS.items()
    }
