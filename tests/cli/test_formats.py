"""`--format json`: standard output holds one document with what the table shows, and docs/command.md lists its keys."""

import json
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, serving
from failing_service import connection
from gated import drawn, fallen, gated

from evalflows.cli.main import cli
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import FORMAT

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


def documented(part: str) -> list[str]:
    """The keys that docs/command.md lists for a part of the document."""
    text = (ROOT / "docs/command.md").read_text(encoding="utf-8")
    (keys,) = re.findall(rf"^\| `{re.escape(part)}` \| (.*) \|$", text, flags=re.M)
    return re.findall(r"`(\w+)`", keys)


@pytest.fixture
def kept(store_root: Path) -> None:
    """A store with two experiments, a decision and a comparison."""
    with zipfile.ZipFile(ROOT / f"tests/store/kept/format_{FORMAT}.zip") as archive:
        archive.extractall(store_root)


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_the_keys_are_those_of_the_documentation() -> None:
    shown = parsed(asked("show", "kept", "--format", "json"))
    (lowest,) = parsed(asked("show", "kept-long", "--worst", "length", "--format", "json"))["worst_examples"]
    listed = parsed(asked("ls", "--format", "json"))
    comparison, experiment, _ = listed
    assert [row["kind"] for row in listed] == ["comparison", "experiment", "experiment"], "newest first"
    compared = next(row["against_baseline"] for row in shown["metrics"] if row["against_baseline"])
    parts = {
        "document": shown,
        "experiments[]": shown["experiments"][0],
        "metrics[]": shown["metrics"][0],
        "metrics[].against_baseline": compared,
        "decisions[]": shown["decisions"][0],
        "decisions[].rules[]": shown["decisions"][0]["rules"][0],
        "comparison": shown["comparison"],
        "comparison.win_rates[]": shown["comparison"]["win_rates"][0],
        "comparison.ranking[]": shown["comparison"]["ranking"][0],
        "comparison.biases[]": shown["comparison"]["biases"][0],
        "worst_examples[]": lowest,
        "worst_examples[].examples[]": lowest["examples"][0],
        "failures[]": shown["failures"][0],
    }
    for part, value in parts.items():
        assert sorted(documented(part)) == sorted(value), part
    assert sorted(experiment) == sorted(["kind", "gates", *documented("experiments[]")])
    nested = {"win_rates", "ranking", "biases", "failures", "sentences"}
    assert {*comparison} == {"kind", *documented("comparison")} - nested


@pytest.mark.usefixtures("kept")
def test_the_document_says_what_the_table_says() -> None:
    shown, table = parsed(asked("show", "kept", "--format", "json")), asked("show", "kept").stdout
    assert all(" ".join(sentence.split()) in " ".join(table.split()) for sentence in shown["sentences"])
    assert table.splitlines()[-1] == f"next: {shown['next']}"
    (decision,) = shown["decisions"]
    assert f"gate release: {decision['candidate']} against {decision['baseline']}: PASS" in table
    quality = [row for row in shown["metrics"] if row["metric"] == "quality"]
    assert [row["against_baseline"] and row["against_baseline"]["conclusion"] for row in quality] == [None, "better"]
    assert quality[0]["mean"] == 0.5 and quality[0]["ci_low"] is None and quality[0]["reason_code"] == "no_spread"
    started = datetime.fromisoformat(shown["experiments"][0]["started_at"])
    assert started.tzinfo is not None and started.astimezone(UTC).isoformat() == shown["experiments"][0]["started_at"]
    assert shown["experiments"][0]["snapshot_id"].startswith("snap-")


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_the_limits_of_a_decision_are_the_same_everywhere() -> None:
    """In `show`, in reports as text and as JSON, and in `explain`."""
    (decision,) = parsed(asked("show", "kept", "--format", "json"))["decisions"]
    limits = decision["limits"]
    assert [limit.partition(":")[0] for limit in limits] == ["contains, non inferiority", "short, superiority"]
    assert all("1 missing value" in limit and "worst-case interval" in limit for limit in limits)
    (reported,) = parsed(asked("report", "release", "--format", "json"))["decisions"]
    assert reported["limits"] == limits
    page = asked("report", "release", "--format", "md").stdout
    _, after = asked("explain", "release").stdout.split("\nLimits of this decision\n")
    explained = " ".join(after.partition("\n\n")[0].split())
    assert explained == " ".join(limits)
    assert all(limit in page.replace("\\", "") for limit in limits), "Markdown escapes brackets"


@pytest.mark.usefixtures("kept")
def test_a_comparison_is_a_document_too() -> None:
    shown = parsed(asked("show", "cmp-", "--format", "json"))
    assert shown["comparison"]["comparison_id"].startswith("cmp-")
    assert [rate["win_rate"] for rate in shown["comparison"]["win_rates"]] == [1.0, None]
    assert (shown["experiments"], shown["metrics"], shown["calls_made"]) == ([], [], None)
    assert shown["next"].startswith("evalflows sql ")


@pytest.mark.parametrize("options", [(), ("--name", "nothing")])
def test_nothing_to_list_is_an_empty_array(options: tuple[str, ...], store_root: Path) -> None:
    assert not store_root.exists()
    assert parsed(asked("ls", *options, "--format", "json")) == []


def test_hints_go_to_standard_error() -> None:
    done = asked("show", "nothing", "--format", "json")
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.startswith("evalflows: no store at ")
    Store()
    done = asked("show", "nothing", "--format", "json")
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.startswith("evalflows: experiment 'nothing'")


def specified(folder: Path, fields: dict[str, Any]) -> str:
    (folder / "spec.yaml").write_text(yaml.safe_dump(fields))
    return str(folder / "spec.yaml")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_run_prints_its_document(tmp_path: Path) -> None:
    spec = specified(tmp_path, gated(tmp_path, [], old=OLD, new=fallen(OLD, 0.4)))
    ran = parsed(asked("run", spec, "--format", "json"))
    assert [one["state"] for one in ran["experiments"]] == ["completed", "completed"]
    assert (ran["calls_made"], ran["decisions"], ran["comparison"], ran["failures"]) == (0, [], None, [])
    (worst,) = ran["worst_examples"]
    assert (worst["metric"], worst["name"], worst["baseline"]) == ("exact_match", "new", "old")
    assert [(item["baseline_value"], item["value"]) for item in worst["examples"]] == [(1.0, 0.0)] * 5
    assert worst["examples"][0]["inputs"] == {"q": "Question 0?"}
    shown = parsed(asked("show", "app", "--format", "json"))
    assert shown == ran | {"calls_made": None}


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
    assert "loud: asked" in done.stderr
    captured = capfd.readouterr()
    assert "a process was asked" not in captured.out and "a process was asked" in captured.err


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize(
    ("share", "code", "conclusion", "outcome"), [(0.4, 1, "FAIL", "broken"), (0, 0, "PASS", "met")]
)
def test_a_gate_prints_its_document_and_ends_as_ever(
    tmp_path: Path, share: float, code: int, conclusion: str, outcome: str
) -> None:
    old = drawn(200, 0.8)
    spec = specified(tmp_path, gated(tmp_path, [GUARD], old=old, new=fallen(old, share)))
    decided = parsed(asked("gate", spec, "--format", "json"), code)
    (decision,) = decided["decisions"]
    assert (decision["gate"], decision["conclusion"]) == ("release", conclusion)
    (rule,) = decision["rules"]
    assert (rule["metric"], rule["bound"], rule["outcome"], rule["n"]) == ("exact_match", 0.05, outcome, 200)
    assert rule["value"] == pytest.approx(-share)
    assert [one["target"] for one in decided["experiments"]] == ["old", "new"]
    assert bool(decided["worst_examples"]) == (conclusion == "FAIL")


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
    assert ran["next"] == f"evalflows resume {experiment['experiment_id']}"
