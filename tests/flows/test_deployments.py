"""What is deployed, on a real server, and what becomes of a run of it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from endpoint import Endpoint, Reply, serving
from prefect.settings import Settings
from prefect.utilities.callables import parameter_schema
from running_up import EVALFLOWS, MARK, Up, ask, prefect_yaml, running_up, until

from evalflows.execution.server.settings import SERVER_SETTINGS
from evalflows.flows.compare_experiments import compare_experiments
from evalflows.flows.deployments import comparison_spec_of, prefect_file, spec_of, trace_evaluation_spec_of
from evalflows.flows.evaluate_traces import evaluate_traces
from evalflows.specs.comparison import ComparisonSpec, load_comparison
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment
from evalflows.specs.retention import RetentionSpec, load_retention
from evalflows.specs.trace_evaluation import TraceEvaluationSpec, load_trace_evaluation

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data" / "experiments" / "demo.yaml"
DEMO_PAIRS = ROOT / "data" / "comparisons" / "demo.yaml"
PRODUCTION = ROOT / "data" / "trace_evaluations" / "production.yaml"
RETENTION = ROOT / "data" / "retention" / "default.yaml"
SPEC = {
    "name": "small",
    "description": "{{ $HOME }}, {{ spec }} and {{x}} are not templates",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:upper"}],
    "evaluators": ["exact_match"],
}
PREFECT_YAML = prefect_yaml("mine", changes="[repetitions=2]")


def deploy(folder: Path, environment: dict[str, str]) -> list[str]:
    """Run `evalflows deploy` in a folder. Returns the lines it prints."""
    done = subprocess.run(
        [EVALFLOWS, "deploy"], cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.removeprefix("deployed").strip() for line in done.stdout.splitlines()]


def deployment(environment: dict[str, str], name: str) -> dict[str, Any]:
    found = ask(environment["PREFECT_API_URL"], "/deployments/filter", deployments={"name": {"any_": [name]}})
    assert len(found) == 1
    return dict(found[0])


@pytest.mark.slow
def test_what_ships_is_deployed_and_scheduled(prefect_environment: dict[str, str]) -> None:
    said = deploy(ROOT, prefect_environment)
    experiments = ["run_experiment/demo", "run_experiment/nightly (0 3 * * * UTC)"]
    production = "evaluate_traces/production (5 * * * * UTC, paused)"
    retention = "apply_retention/retention (30 4 * * * UTC, paused)"
    others = [retention, "compare_experiments/compare", production, "gate_release/gate"]
    names = [*others, *experiments, f"from {ROOT / 'prefect.yaml'}"]
    assert said == names
    demo, nightly, compare, gate = (
        deployment(prefect_environment, name) for name in ("demo", "nightly", "compare", "gate")
    )
    given = load_experiment(DEMO)
    assert ExperimentSpec.model_validate(demo["parameters"]["spec"]) == given
    assert demo["parameters"]["spec"].keys() == ExperimentSpec.model_fields.keys(), "a field would be empty in the form"
    night = ExperimentSpec.model_validate(nightly["parameters"]["spec"])
    assert (night.name, night.run_key, night.use_cache) == ("nightly", None, False)
    assert [target.connection for target in night.targets] == ["local", "local"], "it would cost something"
    assert {evaluator.connection for evaluator in night.evaluators} == {None} and night.compare is None
    assert night.dataset == given.dataset
    assert ComparisonSpec.model_validate(compare["parameters"]["spec"]) == load_comparison(DEMO_PAIRS)
    assert gate["parameters"]["spec"] == demo["parameters"]["spec"]
    watched = deployment(prefect_environment, "production")
    assert TraceEvaluationSpec.model_validate(watched["parameters"]["spec"]) == load_trace_evaluation(PRODUCTION)
    retained = deployment(prefect_environment, "retention")
    assert RetentionSpec.model_validate(retained["parameters"]["spec"]) == load_retention(RETENTION)
    assert [one["active"] for one in retained["schedules"]] == [False]
    assert all(one["description"] and one["tags"] for one in (demo, nightly, compare, gate, watched, retained))

    assert deploy(ROOT, prefect_environment) == names
    again = deployment(prefect_environment, "nightly")
    assert (again["id"], len(again["schedules"])) == (nightly["id"], 1)

    def due() -> list[dict[str, Any]]:
        one = {"id": {"any_": [nightly["id"]]}}
        return list(ask(prefect_environment["PREFECT_API_URL"], "/flow_runs/filter", deployments=one))

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


@pytest.mark.slow
def test_a_run_that_completes_ends_the_command_well(up: Up, prefect_environment: dict[str, str]) -> None:
    done = run_and_watch(prefect_environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'Completed'" in done.stdout
    query = "select description, repetitions, state from experiments"
    rows = subprocess.run(
        [EVALFLOWS, "sql", query, "--format", "json"],
        env=os.environ | {"EVALFLOWS_STORE": str(up.output.parent / "data" / "store")},
        capture_output=True,
        text=True,
    )
    assert json.loads(rows.stdout) == {"description": SPEC["description"], "repetitions": 2, "state": "completed"}


@pytest.mark.slow
def test_a_run_that_fails_ends_the_command_badly(up: Up, prefect_environment: dict[str, str]) -> None:
    spec = SPEC | {"dataset": {"path": "nowhere.jsonl"}, "evaluators": [{"use": "exact_match"}]}
    done = run_and_watch(prefect_environment, "--params", json.dumps({"spec": spec}))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "'Failed'" in done.stdout


@pytest.mark.slow
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


def test_a_step_reads_a_spec_whole_and_changed(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    spec = spec_of(str(tmp_path / "spec.yaml"), ["repetitions=3"])["spec"]
    assert spec["repetitions"] == 3
    assert spec["evaluators"][0]["use"] == "exact_match"
    assert spec.keys() == ExperimentSpec.model_fields.keys()


def test_a_step_reads_a_comparison_whole_and_changed() -> None:
    spec = comparison_spec_of(str(DEMO_PAIRS), ["seed=3", "evaluators=pairwise_preference"])["spec"]
    assert (spec["seed"], spec["evaluators"][0]["use"]) == (3, "pairwise_preference")
    assert spec.keys() == ComparisonSpec.model_fields.keys(), "a field would be empty in the form"
    with pytest.raises(InputError, match=r"demo\.yaml: seeds: no such field"):
        comparison_spec_of(str(DEMO_PAIRS), ["seeds=3"])


def test_what_is_compared_by_default_is_what_the_demo_makes() -> None:
    spec, demo = load_comparison(DEMO_PAIRS), load_experiment(DEMO)
    assert spec.experiments == [f"{demo.name}-{target.name}" for target in demo.targets]
    assert spec.baseline == f"{demo.name}-{demo.baseline}"
    assert spec.both_orders, "of one order there is no saying what the place does"


def test_the_second_part_of_the_demo_pays_for_no_answer_again() -> None:
    demo, judge = load_experiment(DEMO), load_experiment(DEMO.with_name("demo-judge.yaml"))
    assert judge.targets == demo.targets
    assert judge.dataset == demo.dataset.model_copy(update={"sample": judge.dataset.sample}), "part of the same sample"
    assert judge.dataset.sample is not None and judge.dataset.sample < (demo.dataset.sample or 0)


def test_a_step_reads_a_trace_evaluation_whole_and_changed() -> None:
    spec = trace_evaluation_spec_of(str(PRODUCTION), ["max_items=3"])["spec"]
    assert (spec["max_items"], spec.keys()) == (3, TraceEvaluationSpec.model_fields.keys())


@pytest.mark.parametrize(
    ("flow", "model"), [(compare_experiments, ComparisonSpec), (evaluate_traces, TraceEvaluationSpec)]
)
def test_every_field_of_the_form_is_described(flow: Any, model: Any) -> None:
    schema = parameter_schema(flow).model_dump()
    fields = schema["definitions"][model.__name__]["properties"] | schema["properties"]
    assert {*model.model_fields, "spec", "resume"} <= fields.keys()
    assert [name for name, field in fields.items() if not field.get("description")] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deployments: [", "not YAML"),
        ("deployments: [{name: a}]", "wanted deployments, each with a name and a work_pool"),
        ("[]", "wanted deployments, each with a name and a work_pool"),
    ],
)
def test_a_bad_prefect_yaml_is_told_in_a_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "prefect.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        prefect_file(tmp_path)


def test_our_prefect_yaml_is_one() -> None:
    file = prefect_file(ROOT)
    assert {"demo", "nightly", "compare", "gate"} <= {*file.deployments}
    assert file.pools == ["evalflows"]


def test_the_prefect_yaml_in_the_docs_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "deployments.md").read_text(), flags=re.S)
    (tmp_path / "prefect.yaml").write_text(block)
    assert prefect_file(tmp_path).deployments == ["support-bot"]
    shown, ours = yaml.safe_load(block), yaml.safe_load((ROOT / "prefect.yaml").read_text())
    assert shown["pull"] == ours["pull"]
    assert shown["deployments"][0].keys() == ours["deployments"][1].keys()
    assert shown["deployments"][0]["work_pool"] == ours["deployments"][1]["work_pool"]


def test_every_setting_of_the_server_is_one_of_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVER_SETTINGS.items():
        monkeypatch.setenv(name, value)
    known = Settings().to_environment_variables(include_secrets=False)
    assert {name: known.get(name, "").lower().removesuffix(".0") for name in SERVER_SETTINGS} == SERVER_SETTINGS


def test_the_docs_list_the_settings_of_our_server() -> None:
    text = (ROOT / "docs" / "deployments.md").read_text()
    assert dict(re.findall(r"^    export (PREFECT_SERVER_\w+)=(\S+)$", text, flags=re.M)) == SERVER_SETTINGS
