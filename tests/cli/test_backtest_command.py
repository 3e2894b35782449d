"""evalflows backtest, from a spec file to what is printed."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from past import Past, passes

from evalflows.cli.backtest import backtest
from evalflows.cli.main import cli
from evalflows.cli.schema import schema_of

N = 120
SPEC: dict[str, Any] = {
    "name": "qa",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "name": "bot", "function": "bot:answer"}],
    "evaluators": ["exact_match"],
    "gates": [
        {"name": "release", "non_inferiority": {"right": 0.1}},
        {"name": "absurd", "non_inferiority": {"right": 0.0001}},
    ],
}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A spec file, and a past of five experiments: two of one target, two that are as good, and one that is bad."""
    past = Past()
    for seed, (target, rate) in enumerate([("a", 0.9), ("a", 0.9), ("b", 0.9), ("c", 0.5), ("d", 0.9)]):
        past.experiment({"right": passes(rate, N, seed=seed)}, target_version=target)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    return str(tmp_path / "spec.yaml")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(backtest, list(arguments), catch_exceptions=False)


def test_it_prints_pairs_counts_and_sentences(spec: str) -> None:
    done = run(spec, "--gate", "release", "--replicates", "20")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "gate release, backtested on 5 experiments"
    assert "because" in run(spec, "--gate", "release", "--replicates", "0", "--all").output
    assert len(lines) <= 30
    said = " ".join(done.output.split())
    assert "of 9 past pairs of different targets, the gate would have blocked 3 (FAIL)" in said
    assert "on 1 pair of the same target (from 2 experiments), the gate decided FAIL 0 times, 0 %" in said
    assert "on 20 replicates without a difference of each of 10 pairs, the gate decided FAIL in" in said
    assert "right worse by twice its margin (0.2): caught in" in said and "gate absurd" not in said
    wider = run(spec, "--gate", "release", "--replicates", "0", "--set", "gates.0.non_inferiority.right=0.9")
    assert "the gate would have blocked 0 (FAIL), passed 9 (PASS)" in " ".join(wider.output.split())


@pytest.mark.slow
def test_json_has_an_object_for_each_gate_and_a_backtest_can_be_shown_again(spec: str) -> None:
    release, absurd = found = json.loads(run(spec, "--replicates", "20", "--format", "json").stdout)
    jsonschema.validate(found, schema_of("backtest"))
    assert (release["gate"], absurd["gate"]) == ("release", "absurd")
    assert (release["past"]["n"], release["past"]["failed"], release["same_target"]["failed"]) == (9, 3, 0)
    # By a margin of nothing only the good one after the bad one passes.
    assert (absurd["past"]["failed"], absurd["past"]["open"], absurd["past"]["passed"]) == (3, 5, 1)
    assert {one["conclusion"] for one in release["decisions"]} >= {"PASS", "FAIL"}
    assert release["simulated"]["falls"][1]["times"] == 2
    assert release["policy"]["non_inferiority"] == {"right": 0.1}
    again = CliRunner().invoke(cli, ["show", release["backtest_id"], "--format", "json"])
    assert json.loads(again.stdout) == release
    *lines, line = run(spec, "--gate", "release", "--replicates", "20").stdout.splitlines()
    shown = CliRunner().invoke(cli, line.removeprefix("kept: evalflows ").split())
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, lines), shown.stderr
    query = "select distinct name, subject_kind, subject_id from checks where subject_id = 'release'"
    listed = CliRunner().invoke(cli, ["sql", query, "--format", "csv"]).stdout.splitlines()[1:]
    assert listed == ["backtest,gate,release"]


def test_trials_are_left_out(spec: str) -> None:
    past = Past()
    past.rows = list(range(5))  # type: ignore[arg-type]  # that many are there
    past.experiment({"right": passes(0.1, N, seed=10)}, target_version="x", tags=["trial"])
    (document,) = json.loads(run(spec, "--gate", "release", "--replicates", "0", "--format", "json").stdout)
    assert document["experiments"] == 5
