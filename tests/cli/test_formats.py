"""`--format json`: standard output holds one document with what the table shows, whose keys are in
docs/reference/command.md.
"""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, serving
from failing_service import connection
from gated import drawn, fallen, gated

from evalflows.cli.main import cli
from evalflows.cli.schema import DOCUMENTS, SPECS, schema_of
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import load_experiment
from evalflows.store.files import FORMAT
from evalflows.store.store import Store

ROOT = Path(__file__).parent.parent.parent
OLD = drawn(40, 0.8)
GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}}
MODULE = """
import os

def loud(q):
    print("loud: asked", q, flush=True)
    os.system("echo a process was asked")
    if q.endswith("0?"):
        raise ValueError("no answer")
    return {"a": "yes"}
"""

Document = Any


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def parsed(done: Result, code: int = 0) -> Document:
    """The only thing on standard output."""
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(f"got {constant}"))


@pytest.fixture
def kept(store_root: Path) -> None:
    """A store with two experiments, a decision and a comparison."""
    with zipfile.ZipFile(ROOT / f"tests/store/kept/format_{FORMAT}.zip") as archive:
        archive.extractall(store_root)


@pytest.mark.usefixtures("kept")
def test_the_document_says_what_the_table_says() -> None:
    shown, table = parsed(asked("show", "kept", "--format", "json")), asked("show", "kept", "--all").stdout
    assert all(" ".join(sentence.split()) in " ".join(table.split()) for sentence in shown["sentences"])
    assert table.splitlines()[-1] == f"next: {shown['next']}"
    (decision,) = shown["decisions"]
    assert f"gate release: {decision['candidate']} against {decision['baseline']}: PASS" in table
    quality = [row for row in shown["metrics"] if row["metric"] == "quality"]
    assert [row["against_baseline"] and row["against_baseline"]["conclusion"] for row in quality] == [None, "better"]
    limits = decision["limits"]
    assert [limit.partition(":")[0] for limit in limits] == ["contains, non inferiority", "short, superiority"]
    (reported,) = parsed(asked("report", "release", "--format", "json"))["decisions"]
    assert reported["limits"] == limits, "the same everywhere"
    _, after = asked("explain", "release", "--all").stdout.split("  limits of this decision:\n")
    assert " ".join(after.partition("\n\n")[0].split()) == " ".join(limits)
    assert after.partition("\n\n")[0] in table
    assert quality[0]["mean"] == 0.5 and quality[0]["ci_low"] == pytest.approx(0.4259, abs=1e-4)
    started = datetime.fromisoformat(shown["experiments"][0]["started_at"])
    assert started.tzinfo is not None and started.astimezone(UTC).isoformat() == shown["experiments"][0]["started_at"]
    assert shown["experiments"][0]["snapshot_id"].startswith("snap-")


def test_nothing_to_list_is_an_empty_array_and_hints_go_to_standard_error(store_root: Path) -> None:
    assert parsed(asked("ls", "--format", "json")) == parsed(asked("ls", "--name", "x", "--format", "json")) == []
    assert not store_root.exists()
    for where in (f"no store at {store_root}", "experiment 'nothing'"):
        done = asked("show", "nothing", "--format", "json")
        assert (done.exit_code, done.stdout) == (2, "")
        error = json.loads(done.stderr)["error"]
        assert error["where"] == where and done.stderr.startswith('{"error": {"kind": "')
        Store()
    for arguments, said in (
        (["diff", "--nope", "--format", "json"], "--nope"),
        (["show", "--format=json"], "EXPERIMENT"),
    ):
        done = asked(*arguments)
        assert said in json.loads(done.stderr)["error"]["message"]
        jsonschema.validate(json.loads(done.stderr), schema_of("error"))
        assert (done.exit_code, json.loads(done.stderr)["error"]["kind"]) == (2, "usage")


@pytest.mark.slow  # some twenty commands
@pytest.mark.usefixtures("kept")
def test_every_document_is_as_its_schema_says(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("experiment,example_id,metric,value,labeller\nkept-brief,q01,contains,1,ana\n")
    assert parsed(asked("labels", "import", str(labels), "--format", "json"))["already_imported"] is False
    added = parsed(asked("dataset", "add", str(labels), "--inputs", "example_id", "--format", "json"))
    assert (added["name"], added["n_examples"]) == ("labels", 1)
    trace = parsed(asked("traces", "ls", "--format", "json"))[0]["trace_id"]
    incident = parsed(asked("alerts", "ls", "--all", "--format", "json"))["incidents"][0]
    arguments = {
        "show": ["kept"],
        "diff": ["kept-long", "kept-brief", "--slices"],
        "best": ["kept", "--metric", "short"],
        "explain": ["release"],
        "plan": ["kept"],
        "dataset show": ["labels"],
        "traces show": [trace],
        "windows": [incident["name"]],
        "alerts show": [incident["incident_id"]],
        "check": ["kept"],
    }
    shown = {}
    for name in DOCUMENTS.keys() - {
        "run",
        "resume",
        "gate",
        "compare",
        "report",
        "backtest",
        "robustness",
        "calibrate",
        "error",
        "judge",  # tests/flows/test_judge_again.py
        "try",
        *(f"modes {one}" for one in ("find", "show", "close", "examples")),
    }:
        shown[name] = parsed(asked(*name.split(), *arguments.get(name, []), "--format", "json"))
        jsonschema.validate(shown[name], schema_of(name))
        assert shown[name] or name == "labels judges", "else it shows nothing of what it can hold"
    jsonschema.validate(parsed(asked("show", "cmp-", "--format", "json")), schema_of("compare"))
    assert [part["title"] for part in shown["explain"]["explanation"]][:2] == ["In the store", "Rules and settings"]
    of_all, newest = shown["ls"], parsed(asked("ls", "--limit", "1", "--format", "json"))
    assert len(of_all) == 3 and newest == of_all[:2], "the newest comparison, and the newest experiment"
    for limit, is_told in ((1, True), (2, False)):
        assert ("only the newest 1 are shown" in asked("ls", "--limit", f"{limit}").stdout) == is_told
    assert shown["doctor"]["is_sound"] and shown["baseline ls"][0]["holds"]
    assert parsed(asked("schema", "ls")) == schema_of("ls")


def test_each_kind_of_spec_has_a_schema() -> None:
    titles = ["ExperimentSpec", "ComparisonSpec", "TraceEvaluationSpec", "RetentionSpec"]
    assert [schema_of(name).get("title") for name in SPECS] == titles


@pytest.mark.parametrize("path", ["examples/vicuna80", "examples/tau_bench", "evalflows/cli/templates/experiment"])
def test_a_typo_is_found_by_the_schema_and_by_us_in_the_same_place(path: str, tmp_path: Path) -> None:
    fields = yaml.safe_load((ROOT / f"{path}.yaml").read_text())
    validator = jsonschema.Draft202012Validator(schema_of("spec"))
    assert [*validator.iter_errors(fields)] == [], "short forms are allowed"
    fields["targets"][-1]["modle"] = "x"
    (error,) = validator.iter_errors(fields)
    where = ".".join(map(str, error.absolute_path))
    with pytest.raises(InputError, match=rf": {where}\.\w+\.modle: no such field") as refused:
        load_experiment(specified(tmp_path, fields))
    assert where == f"targets.{len(fields['targets']) - 1}" and "more)" not in str(refused.value)


def specified(folder: Path, fields: dict[str, Any]) -> str:
    (folder / "spec.yaml").write_text(yaml.safe_dump(fields))
    return str(folder / "spec.yaml")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_run_with_failed_rows_and_a_loud_target_prints_only_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loud_target.py").write_text(MODULE)
    target = {"kind": "python", "name": "loud", "function": "loud_target:loud"}
    spec = specified(tmp_path, gated(tmp_path, [], {"targets": [target]}, one=OLD))
    done = asked("run", spec, "--format", "json")
    ran = parsed(done)
    (experiment,) = ran["experiments"]
    assert (experiment["answered"], experiment["failed"]) == (36, 4)
    (metric,) = [row for row in ran["metrics"] if row["metric"] == "exact_match"]
    assert (metric["mean"], metric["scored"], metric["missing"]) == (1.0, 36, 4)
    assert [(one["source"], one["count"]) for one in ran["failures"]] == [("target", 4)]
    assert parsed(asked("show", "app", "--format", "json")) == ran | {"calls_made": None}
    assert "loud: asked" in done.stderr
    captured = capfd.readouterr()
    assert "a process was asked" not in captured.out and "a process was asked" in captured.err


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_gate_prints_its_document_and_ends_as_ever(tmp_path: Path) -> None:
    old = drawn(200, 0.8)
    spec = specified(tmp_path, gated(tmp_path, [GUARD], old=old, new=fallen(old, 0.4)))
    decided = parsed(asked("gate", spec, "--format", "json"), 1)
    (decision,) = decided["decisions"]
    assert (decision["gate"], decision["conclusion"]) == ("release", "FAIL")
    (rule,) = decision["rules"]
    assert (rule["metric"], rule["bound"], rule["outcome"], rule["n"]) == ("exact_match", 0.05, "broken", 200)
    assert rule["value"] == pytest.approx(-0.4)
    assert [(one["target"], one["state"]) for one in decided["experiments"]] == [
        ("old", "completed"),
        ("new", "completed"),
    ]
    assert (decided["calls_made"], decided["comparison"], decided["failures"]) == (0, None, [])
    (worst,) = decided["worst_examples"]
    assert (worst["metric"], worst["name"], worst["baseline"]) == ("exact_match", "new", "old")
    assert [(item["baseline_value"], item["value"]) for item in worst["examples"]] == [(1.0, 0.0)] * 5
    assert worst["examples"][0]["inputs"]["q"].startswith("Question ")
    shown = parsed(asked("show", "app", "--format", "json"))
    assert shown["experiments"] == decided["experiments"] and shown["decisions"] == decided["decisions"]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_an_incomplete_run_prints_what_it_has(tmp_path: Path) -> None:
    target = {"kind": "chat", "name": "chat", "connection": "service", "user": "{q}"}
    with serving(Endpoint()) as endpoint:
        connections = {"service": connection(endpoint)}
        fields = gated(tmp_path, [], {"targets": [target], "connections": connections, "max_calls": 10}, one=OLD)
        done = asked("run", specified(tmp_path, fields), "--format", "json")
    ran = parsed(done, 4)
    (experiment,) = ran["experiments"]
    assert (experiment["state"], experiment["answered"], experiment["calls"]) == ("incomplete", 10, 10)
    assert experiment["cost_usd"] is None, "the price is unknown, so the cost is not 0"
    assert "the budget is spent" in experiment["reason"] and "the budget is spent" in done.stderr
    assert ran["next"].startswith(f"evalflows resume {experiment['experiment_id']} --set max_calls=20 ")
