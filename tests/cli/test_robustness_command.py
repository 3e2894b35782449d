"""evalflows robustness and calibrate, from a run to what is printed."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.robustness import calibrate, robustness
from specs.metric import CompositeSpec
from store import Store
from store.robustness_report import robustness_report

MODULE = """
def plain(question):
    return "The answer to this question is surely " + question.upper()

def brief(question):
    return question.upper() if int(question[1:]) % 5 else "no"

def muddled(question):
    return "Who could say what the answer to it may be"
"""
N = 20


def wide(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.fixture
def run_group(tmp_path: Path, prefect_api: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A start of three systems: plain is right and long, brief mostly right and short, muddled wrong and long."""
    from flows import run
    from specs.experiment import load_experiment

    (tmp_path / "robustly.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spec = {
        "name": "demo",
        "dataset": {"path": "rows.jsonl"},
        "targets": [
            {"kind": "python", "name": one, "function": f"robustly:{one}"} for one in ("plain", "brief", "muddled")
        ],
        "evaluators": ["contains", {"use": "length_between", "name": "short", "args": {"most": 20}}],
        "composites": [{"name": "quality", "weights": {"contains": 3, "short": 1}}],
        "metrics": {"length": {}},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = run(load_experiment("spec.yaml"))
    (row,) = Store().read("experiments", done[0])
    return str(row.run_group)


def test_a_start_is_looked_into_and_told_in_tables_and_sentences(run_group: str) -> None:
    """Contains: plain 1, brief 0.8; short: plain 0, brief 1. Level where contains weighs 1 / 1.2."""
    done = wide(robustness, "demo")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["quality", "plain", "0.750", "16.7%", "exact"] in lines
    assert ["contains", "0.750", "0.900", "plain"] in lines
    assert ["contains", "0.750", "0.600", "brief"] in lines
    assert "quality: brief is ahead at the declared weights (contains 0.75, short 0.25): " in done.stdout
    assert "brief would fall behind plain if contains weighed 0.83 instead of 0.75" in done.stdout
    assert "by contains, short, length nobody beats " in done.stdout
    assert ["muddled", "0.000", "42.000", "0.000", "no", "0.0%", "plain"] in lines
    report = robustness_report(Store(), run_group)
    assert [one.composite for one in report.composites] == ["quality"]
    smaller = wide(robustness, run_group, "--change", "0.1", "--composite", "quality", "--over", "contains,length")
    assert "no weight that is 10 % higher or lower changes that" in smaller.stdout
    assert "by contains, length nobody beats " in smaller.stdout


def test_the_python_door_gives_the_same_report(run_group: str) -> None:
    from flows.check_robustness import robustness as look_into

    report = look_into(run_group)
    assert report == robustness_report(Store(), run_group)
    assert report.composites[0].passed is False and report.pareto is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "experiment 'nowhere': not in "),
        (("demo", "--composite", "none"), "composite 'none': not of 'demo', wanted one of quality"),
        (("demo", "--change", "2"), "change: got 2, wanted more than 0 and less than 1"),
        (("demo", "--over", "charm"), "over: got 'charm', wanted some of contains, "),
    ],
)
def test_what_cannot_be_looked_into_is_one_line_and_exit_2(
    arguments: tuple[str, ...], message: str, run_group: str
) -> None:
    done = wide(robustness, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"evalflows: {message}") and done.stderr.count("\n") == 1


def cases(path: Path, n: int = 14, given: str = "rank") -> Path:
    parts = np.random.default_rng(0).random((n, 2)).round(3)
    scores = parts @ np.array([0.75, 0.25])
    order = (-scores).argsort().argsort() + 1 if given == "rank" else scores
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "contains", "short", given])
        writer.writerows([f"c{i}", *row, one] for i, (row, one) in enumerate(zip(parts, order, strict=True)))
    return path


@pytest.mark.parametrize("given", ["rank", "score"])
def test_weights_from_a_file_are_printed_as_a_composite(given: str, tmp_path: Path) -> None:
    done = wide(
        calibrate, str(cases(tmp_path / "cases.csv", given=given)), "--metrics", "contains,short", "--name", "mine"
    )
    assert (done.exit_code, done.stderr) == (0, "")
    text, yaml_text = done.stdout.split("composites:\n")
    (composite,) = yaml.safe_load("composites:\n" + yaml_text)["composites"]
    spec = CompositeSpec.model_validate(composite)
    assert spec.name == "mine" and spec.weights == pytest.approx({"contains": 0.75, "short": 0.25}, abs=0.1)
    assert "of 91 pairs of 14 cases, weights that were fitted without one of the two order" in text
    assert "warning" not in text


def test_cases_that_are_too_few_are_warned_of_and_none_make_no_yaml(tmp_path: Path) -> None:
    few = wide(calibrate, str(cases(tmp_path / "few.csv", 6)))
    assert "warning: 6 cases are few, wanted 10 to 20" in few.stdout and "composites:" in few.stdout
    none = wide(calibrate, str(cases(tmp_path / "none.csv", 2)))
    assert "warning: 2 cases: wanted 3 at least" in none.stdout and "composites:" not in none.stdout


def test_a_file_that_cannot_be_used_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = wide(calibrate, str(tmp_path / "nowhere.csv"))
    assert done.exit_code == 2 and "nowhere.csv: cannot be read: No such file" in done.stderr
    (tmp_path / "stars.csv").write_text("stars,rank\n5,1\n1,2\n")
    done = wide(calibrate, str(tmp_path / "stars.csv"))
    assert done.exit_code == 2 and "stars.csv:2: stars: got 5, wanted 0 to 1" in done.stderr


def test_ranges_are_taken_from_an_experiment(run_group: str, tmp_path: Path) -> None:
    """The experiment declares nothing of its yes/no metrics, and that a length has no range."""
    good = wide(calibrate, str(cases(tmp_path / "cases.csv")), "--of", run_group)
    assert good.exit_code == 0 and "composites:" in good.stdout
